// LSTMs: one step and many, more outputs than cells and fewer, rows that end at once and rows that do not
// end.
#include <fmt/format.h>

#include <tandem/ops/lstm.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct Extents {
  std::int64_t rows, steps, inputs, cells, outputs;
};

constexpr Extents kExtents[] = {{1, 1, 1, 1, 1}, {2, 3, 4, 5, 2},    {3, 5, 2, 4, 7},    {1, 17, 3, 6, 5},
                                {5, 2, 8, 3, 3}, {33, 4, 16, 17, 9}, {4, 9, 20, 64, 32}, {2, 6, 40, 130, 48}};
constexpr Extents kForTeam{3001, 2, 5, 8, 6};

LstmOptions options_of(const Tensors& x, bool reverse, bool has_lengths) {
  return {.reverse = reverse, .lengths = has_lengths ? x.back() : Tensor()};
}

std::string name_of_case(const char* cell, const Extents& e, bool reverse, bool has_lengths) {
  return fmt::format("{}_{}x{}x{}_h{}_p{}_reverse{}_lengths{}", cell, e.rows, e.steps, e.inputs, e.cells,
                     e.outputs, int{reverse}, int{has_lengths});
}

}  // namespace

OpCases lstm_cases() {
  OpCases cases;
  const auto add = [&](OpCase c, const Extents& e, bool has_lengths) {
    if (has_lengths) {
      c.inputs.push_back(i32({e.rows}, 0, static_cast<double>(e.steps)));
      c.more_nan = "weights multiply the zeros of steps beyond a row's end";
    }
    c.no_bf16_in_turn = "the cells are sums over the steps of rounded numbers";
    cases.push_back(std::move(c));
  };
  std::vector<Extents> all(std::begin(kExtents), std::end(kExtents));
  all.push_back(kForTeam);
  for (const Extents& e : all)
    for (const bool reverse : {false, true})
      for (const bool has_lengths : {false, true}) {
        if (e.rows == kForTeam.rows && !(reverse && has_lengths)) continue;
        for (const bool projected : {false, true}) {
          const std::int64_t outputs = projected ? e.outputs : e.cells;
          OpCase c{name_of_case(projected ? "lstm_projected" : "lstm", e, reverse, has_lengths),
                   {f32({e.rows, e.steps, e.inputs}), f32({4 * e.cells, e.inputs}),
                    f32({4 * e.cells, outputs}), f32({4 * e.cells})},
                   {}};
          if (projected) c.inputs.push_back(f32({outputs, e.cells}));
          c.apply = [=](const Tensors& x) {
            return Tensors{lstm(x[0], {x[1], x[2], x[3], projected ? x[4] : Tensor()},
                                options_of(x, reverse, has_lengths))};
          };
          add(std::move(c), e, has_lengths);
        }
        const std::int64_t gates = 3 * e.cells + e.outputs;
        add({name_of_case("residual_lstm", e, reverse, has_lengths),
             {f32({e.rows, e.steps, e.outputs}), f32({gates, e.outputs}), f32({gates, e.outputs}),
              f32({gates}), f32({2, e.cells}), f32({e.outputs, e.cells}), f32({e.outputs, e.cells})},
             [=](const Tensors& x) {
               return Tensors{residual_lstm(x[0], {x[1], x[2], x[3], x[4], x[5], x[6]},
                                            options_of(x, reverse, has_lengths))};
             }},
            e, has_lengths);
      }
  return cases;
}

}  // namespace tandem::testing
