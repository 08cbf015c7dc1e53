// LSTMs against their steps, computed by other ops, and what they refuse.
#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/ops/kernels.h>
#include <tandem/ops/lstm.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

#include "expect_error.h"
#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

Tensor step_of(const Tensor& x, std::int64_t t) {
  return reshape(slice(x, 1, t, t + 1), {x.size(0), x.size(2)});
}
Tensor gate_of(const Tensor& gates, std::int64_t begin, std::int64_t end) {
  return slice(gates, 1, begin, end);
}

// The outputs of the steps side by side, from the first to the last.
Tensor joined(Tensors outputs, bool reverse) {
  if (reverse) std::reverse(outputs.begin(), outputs.end());
  return stack(outputs, 1);
}

// As the documentation of torch.nn.LSTM gives it.
Tensor in_steps(const Tensor& x, const LstmWeights& w, bool reverse) {
  const std::int64_t steps = x.size(1), cells = w.input.size(0) / 4;
  Tensor h, c;
  Tensors outputs;
  for (std::int64_t s = 0; s < steps; ++s) {
    Tensor gates = linear(step_of(x, reverse ? steps - 1 - s : s), w.input, w.bias);
    if (h) gates = gates + linear(h, w.hidden);
    const Tensor i = sigmoid(gate_of(gates, 0, cells)), f = sigmoid(gate_of(gates, cells, 2 * cells)),
                 g = tanh(gate_of(gates, 2 * cells, 3 * cells)),
                 o = sigmoid(gate_of(gates, 3 * cells, 4 * cells));
    c = c ? f * c + i * g : i * g;
    h = o * tanh(c);
    if (w.projection) h = linear(h, w.projection);
    outputs.push_back(h);
  }
  return joined(outputs, reverse);
}

// As equations (7) to (13) of Kim, El-Khamy & Lee (2017) give it.
Tensor in_steps(const Tensor& x, const ResidualLstmWeights& w, bool reverse) {
  const std::int64_t steps = x.size(1), cells = w.projection.size(1), width = w.input.size(0);
  Tensor h, c;
  Tensors outputs;
  for (std::int64_t s = 0; s < steps; ++s) {
    const Tensor in = step_of(x, reverse ? steps - 1 - s : s);
    Tensor gates = linear(in, w.input, w.bias);
    if (h) gates = gates + linear(h, w.hidden);
    Tensor to_i = gate_of(gates, 0, cells), to_f = gate_of(gates, cells, 2 * cells);
    if (c) {
      to_i = to_i + w.peepholes[0] * c;
      to_f = to_f + w.peepholes[1] * c;
    }
    const Tensor g = sigmoid(to_i) * tanh(gate_of(gates, 2 * cells, 3 * cells));
    c = c ? sigmoid(to_f) * c + g : g;
    const Tensor o = sigmoid(gate_of(gates, 3 * cells, width) + linear(c, w.output_peephole));
    h = o * (linear(tanh(c), w.projection) + in);
    outputs.push_back(h);
  }
  return joined(outputs, reverse);
}

// Compares the values and all gradients of two functions of the same inputs.
void expect_equal(const std::vector<InputSpec>& inputs, const std::function<Tensors(const Tensors&)>& f,
                  const std::function<Tensors(const Tensors&)>& g) {
  const TracedCase a = trace_case({"one", inputs, f}, DType::f32, true),
                   b = trace_case({"other", inputs, g}, DType::f32, true);
  std::mt19937_64 rng(1);
  std::map<ValueId, Tensor> of_a, of_b;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    of_a[a.inputs[i]] = of_b[b.inputs[i]] = draw(inputs[i], i, inputs.size(), rng);
  of_a[a.cotangents[0]] = of_b[b.cotangents[0]] = draw(f32(a.graph.type(a.outputs[0]).shape), 0, 1, rng);
  const Contents x = run_graph(a.graph, of_a, {cpu_kernels()}), y = run_graph(b.graph, of_b, {cpu_kernels()});
  const auto compare = [&](ValueId of_x, ValueId of_y) {
    EXPECT_LE(relative_difference(to_doubles(DType::f32, x.at(of_x)), to_doubles(DType::f32, y.at(of_y))),
              1e-5);
  };
  compare(a.outputs[0], b.outputs[0]);
  for (std::size_t i = 0; i < inputs.size(); ++i) compare(a.gradients[i], b.gradients[i]);
}

TEST(Lstm, EqualsItsSteps) {
  for (const bool reverse : {false, true})
    for (const std::int64_t projected : {0, 5}) {
      SCOPED_TRACE(fmt::format("reverse {} projected {}", reverse, projected));
      const std::int64_t cells = 12, outputs = projected ? projected : cells;
      std::vector<InputSpec> inputs{f32({3, 7, 4}), f32({4 * cells, 4}), f32({4 * cells, outputs}),
                                    f32({4 * cells})};
      if (projected) inputs.push_back(f32({outputs, cells}));
      const auto weights = [=](const Tensors& x) {
        return LstmWeights{x[1], x[2], x[3], projected ? x[4] : Tensor()};
      };
      expect_equal(
          inputs, [&](const Tensors& x) { return Tensors{lstm(x[0], weights(x), {.reverse = reverse})}; },
          [&](const Tensors& x) { return Tensors{in_steps(x[0], weights(x), reverse)}; });
    }
}

TEST(Lstm, ResidualEqualsItsSteps) {
  for (const bool reverse : {false, true}) {
    const std::int64_t cells = 12, outputs = 5, gates = 3 * cells + outputs;
    const auto weights = [](const Tensors& x) {
      return ResidualLstmWeights{x[1], x[2], x[3], x[4], x[5], x[6]};
    };
    expect_equal(
        {f32({3, 7, outputs}), f32({gates, outputs}), f32({gates, outputs}), f32({gates}), f32({2, cells}),
         f32({outputs, cells}), f32({outputs, cells})},
        [&](const Tensors& x) { return Tensors{residual_lstm(x[0], weights(x), {.reverse = reverse})}; },
        [&](const Tensors& x) { return Tensors{in_steps(x[0], weights(x), reverse)}; });
  }
}

// A row of some length gives what it gives alone, and then zeros.
TEST(Lstm, RowsEndAtTheirLengths) {
  std::mt19937_64 rng(3);
  const auto drawn = [&](Shape shape) { return draw(f32(std::move(shape)), 0, 1, rng); };
  const Tensor x = drawn({4, 5, 3});
  const LstmWeights w{drawn({24, 3}), drawn({24, 6}), drawn({24}), {}};
  const std::vector<double> lengths{0, 1, 3, 5};
  for (const bool reverse : {false, true}) {
    const Tensor y = lstm(x, w, {.reverse = reverse, .lengths = Tensor::from(lengths, {4}, DType::i32)});
    for (std::int64_t n = 0; n < 4; ++n) {
      const auto length = static_cast<std::int64_t>(lengths[static_cast<std::size_t>(n)]);
      std::vector<double> expected(5 * 6);
      if (length > 0)
        std::ranges::copy(lstm(slice(slice(x, 0, n, n + 1), 1, 0, length), w, {.reverse = reverse}).values(),
                          expected.begin());
      const std::vector<double> row = slice(y, 0, n, n + 1).values();
      for (std::size_t i = 0; i < row.size(); ++i)
        EXPECT_NEAR(expected[i], row[i], static_cast<std::int64_t>(i) < 6 * length ? 1e-6 : 0);
    }
  }
}

Tensor zeros(Shape shape, DType dtype = DType::f32) { return Tensor::zeros({dtype, std::move(shape)}); }

TEST(Lstm, RefusesOperandsThatDoNotFit) {
  const Tensor x = zeros({2, 3, 4});
  const LstmWeights w{zeros({20, 4}), zeros({20, 5}), {}, {}};
  EXPECT_EQ((Shape{2, 3, 5}), lstm(x, w).shape());
  expect_error(
      [&] {
        lstm(x, {zeros({20, 4}), zeros({20, 3}), {}, {}});
      },
      {"5 cells", "3 outputs", "projection"});
  expect_error([&] { lstm(x, {zeros({18, 4}), zeros({18, 5}), {}, {}}); }, {"18 features", "four gates"});
  expect_error([&] { lstm(x, {zeros({20, 4}), zeros({24, 5}), {}, {}}); }, {"hidden weights", "f32[20, P]"});
  expect_error(
      [&] {
        lstm(x, {zeros({20, 4}), zeros({20, 3}), {}, zeros({3, 4})});
      },
      {"the projection", "f32[3, 5]"});
  expect_error([&] { lstm(x, w, {.lengths = zeros({3}, DType::i32)}); }, {"lengths", "i32[2]"});
  expect_error(
      [&] {
        lstm(x, w, {.lengths = Tensor::from(std::vector<double>{1, 4}, {2}, DType::i32)}).values();
      },
      {"length 4 of row 1", "0 to 3"});
  expect_error(
      [&] {
        lstm(x, w, {.lengths = Tensor::from(std::vector<double>{-1, 4}, {2}, DType::i32)}).values();
      },
      {"length -1 of row 0"});
  const ResidualLstmWeights r{zeros({19, 4}), zeros({19, 4}), zeros({19}),
                              zeros({2, 5}),  zeros({4, 5}),  zeros({4, 5})};
  EXPECT_EQ((Shape{2, 3, 4}), residual_lstm(x, r).shape());
  ResidualLstmWeights other = r;
  other.peepholes = zeros({2, 4});
  expect_error([&] { residual_lstm(x, other); }, {"peepholes", "f32[2, 5]"});
  other = r;
  other.hidden = zeros({19, 2});
  expect_error([&] { residual_lstm(x, other); }, {"19 features", "three gates", "2 outputs"});
}

}  // namespace
}  // namespace tandem::testing
