#pragma once
#include <tandem/ops/launch_operands.h>
#include <tandem/ops/lstm.h>

namespace tandem::engine {

/// The operands of a launch of LstmOp or LstmGradOp; null where the form has none.
template <class T> struct LstmOperands {
  const T *gates, *hidden, *projection = nullptr;
  const T *peephole_i = nullptr, *peephole_f = nullptr, *output_peephole = nullptr, *shortcut = nullptr;
  const std::int32_t* lengths = nullptr;

  LstmOperands(const LstmForm& form, const LstmSize& size, const Launch& l)
      : gates(input<T>(l, 0)), hidden(input<T>(l, LstmForm::hidden)) {
    if (form.projected) projection = input<T>(l, LstmForm::projection);
    if (form.residual) {
      peephole_i = input<T>(l, LstmForm::peepholes);
      peephole_f = peephole_i + size.cells;
      output_peephole = input<T>(l, LstmForm::output_peephole);
      shortcut = input<T>(l, LstmForm::shortcut);
    }
    if (form.has_lengths) check_lengths(lengths = input<std::int32_t>(l, form.lengths()), size);
  }

  /// Tells whether row n has a step t.
  bool has_step(std::int64_t n, std::int64_t t) const { return !lengths || t < lengths[n]; }
};

/// The steps in the order in which an LSTM runs them.
struct LstmOrder {
  std::int64_t steps;
  bool reverse;
  std::int64_t at(std::int64_t i) const { return reverse ? steps - 1 - i : i; }
};

}  // namespace tandem::engine
