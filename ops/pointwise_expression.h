#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/base/types.h>

namespace tandem::engine {

/// The operation of one term of a pointwise expression. Comparisons give 1 or 0.
enum class PointwiseCode : std::uint8_t {
  input,     ///< element of input number `a`
  constant,  ///< `immediate`
  cast,      ///< register `a` rounded as a store in dtype `b` rounds; `b` is a DType, not a register
  neg,
  exp,
  log,
  tanh,
  sqrt,
  rsqrt,
  sigmoid,
  erf,
  abs,
  relu,
  gelu,      ///< x·Φ(x) by the error function
  softplus,  ///< log(1 + exp x), without overflow
  elu,       ///< `a` > 0 ? `a` : expm1(a), which is accurate near 0
  selu,      ///< λ·(`a` > 0 ? `a` : α·(exp(a) − 1)): kSeluScale, kSeluAlpha
  floor,
  add,
  sub,
  mul,
  div,
  max,
  min,  ///< max and min give NaN if an operand is NaN
  pow,  ///< as in <cmath>
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  where,  ///< `a` ≠ 0 ? `b` : `c`
};
inline constexpr double kSeluScale = 1.0507009873554804934, kSeluAlpha = 1.6732632423543772848;

std::string_view name_of(PointwiseCode code);
/// Returns how many of `a`, `b`, `c` are registers.
constexpr int operands_of(PointwiseCode code) {
  if (code <= PointwiseCode::constant) return 0;
  return code < PointwiseCode::add ? 1 : code < PointwiseCode::where ? 2 : 3;
}

/// One term of a pointwise expression. Term i writes register i and reads only earlier registers.
struct PointwiseTerm {
  PointwiseCode code;
  int a = -1;
  int b = -1;
  int c = -1;
  double immediate = 0;
  bool operator==(const PointwiseTerm&) const = default;
};

/// Returns the registers that a term reads.
std::vector<int> reads(const PointwiseTerm& instruction);

/// A list of terms without branches; its value is its last register.
using PointwiseExpression = std::vector<PointwiseTerm>;

/// Returns 1 + the highest input number.
int input_count(const PointwiseExpression& expression);
/// Throws Error if the expression is empty or a term reads a register that is not before it.
void check(const PointwiseExpression& expression);
/// Returns true if computing an element costs no more than reading it from memory: no exponentials and the
/// like.
bool is_cheap(const PointwiseExpression& expression);
/// Returns the number of its other terms, each a function such as exp.
std::int64_t expensive_terms(const PointwiseExpression& expression);
/// Returns true if whole inputs give whole values: no quotients, roots, exponentials or fractions.
bool stays_whole(const PointwiseExpression& expression);
/// Returns text such as "in0, 2, mul(0, 1)".
std::string to_string(const PointwiseExpression& expression);

/// Builds an expression term by term; reuses a term that it already has.
class PointwiseBuilder {
 public:
  int input(int index);
  int constant(double value);
  int cast(int register_, DType dtype);
  int emit(const PointwiseTerm& instruction);
  /// Appends `expression`, with `inputs[k]` of this builder as its input k. Returns the register of its
  /// value.
  int append(const PointwiseExpression& expression, const std::vector<int>& inputs);

  /// Returns the expression that ends in register `result`, without the terms that it does not need. `inputs`
  /// receives the remaining input numbers: input i of the returned expression was input `inputs[i]`.
  PointwiseExpression finish(int result, std::vector<int>& inputs) const;

 private:
  int push(const PointwiseTerm& instruction);
  PointwiseExpression expression_;
};

/// Appends to `builder` the gradient of input `input` and sets `result` to its register. The gradient reads
/// the expression's n inputs, then its output (input n), then the output's gradient (input n+1). Returns
/// false if the gradient is zero everywhere. The rules of relu, tanh, exp, sigmoid and sqrt read the output
/// rather than an input, which frees the input's memory.
/// At a kink, the gradients of relu and abs are 0, and max and min pass it to the first of equal operands.
/// floor has none. As in PyTorch, the derivative of pow by its base is 0 if the exponent is 0, and by its
/// exponent is 0 if the base is 0 and the exponent is not negative.
bool differentiate(const PointwiseExpression& expression, int input, PointwiseBuilder& builder, int& result);

}  // namespace tandem::engine
