// Every case in bf16: the results of each op follow from its arguments with one rounding, the results of
// several ops in turn are off by few roundings, and ops without bf16 refuse it.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include <gtest/gtest.h>

#include <tandem/core/base/convert.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/pointwise.h>

#include "expect_error.h"
#include "op_case_test.h"

namespace tandem::testing {
using namespace engine;
namespace {

constexpr double kBf16Rounding = 0x1p-8;  // relative: eight significant bits, rounded to nearest

// The allowed error of several ops in turn, such as a derivative, in roundings of the results and of every
// argument. Each op rounds its result, and the next one can only compute with that. Of 15,000 measured
// results 99.9 % were off by less than one such rounding. The largest correct error is 14: the derivative of
// tanh at 3, the end of its cases, is 1 − y² with a rounded y close to 1.
constexpr double kRoundingsInTurn = 32;

// The op with its expression's value in double.
OpPtr in_double(const OpPtr& op) {
  const auto* expression = dynamic_cast<const TakesExpression*>(op.get());
  if (!expression || !is_floating(expression->dtype)) return op;
  if (expression->name() == "pointwise")
    return std::make_shared<PointwiseOp>(expression->expression, DType::f64);
  return std::make_shared<BatchNormSumsOp>(expression->expression, DType::f64);
}

// A node as a separate graph; its arguments are the node's inputs, each once.
TracedCase alone(const Graph& graph, const Node& node, bool wide) {
  TracedCase t;
  std::map<ValueId, ValueId> arguments;
  std::vector<ValueId> inputs;
  for (ValueId v : node.inputs) {
    TensorType type = graph.type(v);
    if (wide && is_floating(type.dtype)) type.dtype = DType::f64;
    const auto [it, is_new] = arguments.try_emplace(v, -1);
    if (is_new) t.inputs.push_back(it->second = t.graph.add_value(type));
    inputs.push_back(it->second);
  }
  const NodeId id = t.graph.add(wide ? in_double(node.op) : node.op, inputs, node.tag);
  t.outputs = t.graph.node(id).outputs;
  return t;
}

std::map<ValueId, Tensor> arguments_of(const TracedCase& alone, const Node& node, const Contents& values) {
  std::map<ValueId, Tensor> arguments;
  std::set<ValueId> seen;
  for (ValueId v : node.inputs) {
    if (!seen.insert(v).second) continue;
    const ValueId argument = alone.inputs[arguments.size()];
    Tensor t = Tensor::empty(alone.graph.type(argument));
    std::ranges::copy(values.at(v), t.as<std::byte>());
    arguments[argument] = t;
  }
  return arguments;
}

// Whether an infinitesimal change of the arguments can change the results by a jump. Then the effect of a
// change means nothing: only equal arguments have equal results.
bool jumps(const Op& op) {
  if (op.name() == "first_extreme") return true;
  const auto* expression = dynamic_cast<const TakesExpression*>(&op);
  return expression && std::any_of(expression->expression.begin(), expression->expression.end(),
                                   [](const auto& i) { return i.code == PointwiseCode::floor; });
}

double rounded(DType dtype, double value) {
  std::array<std::byte, 8> element;
  store_element(dtype, element.data(), 0, value);
  return load_element(dtype, element.data(), 0);
}

// The first element that is not the rounding, to its dtype, of a number that f32 kernels may give. Whole
// numbers, truth values, and all values that should be exact in that dtype must be as expected.
std::optional<std::size_t> first_misrounded(DType dtype, const std::vector<double>& values,
                                            const std::vector<double>& expected, double effect) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i], y = expected[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!is_floating(dtype)) return i;
    const double margin = kRoundings * (kRounding * std::fabs(y) + effect);
    if (!(rounded(dtype, y - margin) <= x && x <= rounded(dtype, y + margin))) return i;
  }
  return std::nullopt;
}

// The expression with one of its terms off by one rounding.
PointwiseExpression with_rounded_term(const PointwiseExpression& expression, int term) {
  const auto next = expression.begin() + term + 1;
  PointwiseExpression result(expression.begin(), next);
  result.push_back({.code = PointwiseCode::constant, .immediate = 1 + kRounding});
  result.push_back({.code = PointwiseCode::mul, .a = term, .b = term + 1});
  for (auto i = next; i != expression.end(); ++i) {
    PointwiseTerm& moved = result.emplace_back(*i);
    for (int operand = 0; operand < operands_of(moved.code); ++operand)
      if (int& r = operand == 0 ? moved.a : operand == 1 ? moved.b : moved.c; r >= term) r += 2;
  }
  return result;
}

// How far the value of a node's expression moves if its terms are rounded, as kernels do: where terms nearly
// cancel, this is more than the effect of rounded arguments. 0 for a node without an expression.
double effect_of_terms(const Graph& graph, const Node& node, const std::map<ValueId, Tensor>& arguments,
                       const std::vector<double>& value) {
  const auto* op = dynamic_cast<const PointwiseOp*>(node.op.get());
  if (!op || !is_floating(op->dtype)) return 0;
  double effect = 0;
  for (int term = 0; term < std::ssize(op->expression); ++term) {
    Node rounded = node;
    rounded.op = std::make_shared<PointwiseOp>(with_rounded_term(op->expression, term), op->dtype);
    const TracedCase wide = alone(graph, rounded, true);
    const Contents contents = run_graph(wide.graph, arguments, {reference_kernels()});
    effect = std::hypot(effect, difference(values_of(wide.graph, contents, wide.outputs[0]), value));
  }
  return effect;
}

// The outputs of a node by the CPU kernel (in `values`) and by the reference.
void expect_rounded_once(const Graph& graph, const Node& node, const Contents& values, std::mt19937_64& rng) {
  const TracedCase narrow = alone(graph, node, false), wide = alone(graph, node, true);
  const auto arguments = arguments_of(narrow, node, values), exact = as_types_of(wide, narrow, arguments);
  const Contents plain = run_graph(narrow.graph, arguments, {reference_kernels()});
  const Contents oracle = run_graph(wide.graph, exact, {reference_kernels()});
  std::vector<std::vector<double>> expected;
  for (ValueId v : wide.outputs) expected.push_back(values_of(wide.graph, oracle, v));
  std::vector<double> effect;  // computed only if a result fails without it
  for (std::size_t o = 0; o < expected.size(); ++o) {
    const DType dtype = graph.type(node.outputs[o]).dtype;
    for (const auto& [bytes, whose] :
         {std::pair{values.at(node.outputs[o]), "CPU"}, {plain.at(narrow.outputs[o]), "reference"}}) {
      const std::vector<double> actual = to_doubles(dtype, bytes);
      ASSERT_EQ(actual.size(), expected[o].size());
      if (!first_misrounded(dtype, actual, expected[o], 0)) continue;
      if (effect.empty()) {
        effect = effect_of_rounding(wide, exact, expected, kRounding, rng);
        effect[0] += effect_of_terms(graph, node, exact, expected[0]);
      }
      const auto i = first_misrounded(dtype, actual, expected[o], jumps(*node.op) ? 0 : effect[o]);
      EXPECT_FALSE(i.has_value()) << signature(*node.op, graph.types(node.inputs)) << ", output " << o
                                  << " of the " << whose << " kernel, element " << *i << ": " << actual[*i]
                                  << ", not " << expected[o][*i] << " rounded";
    }
  }
}

}  // namespace

TEST_P(OpCaseTest, Bf16ResultsAreRoundedOncePerOp) {
  const OpCase& c = GetParam();
  if (!c.no_bf16.empty()) {
    expect_error([&] { trace_case(c, DType::bf16, false); }, {c.no_bf16});
    return;
  }
  auto rng = generator(c.name + "/bf16");
  const TracedCase single = trace_case(c, DType::bf16, true), twice = trace_case(c, DType::f64, true);
  const auto arguments = draw_arguments(c, single, rng), exact = as_types_of(twice, single, arguments);
  const Contents fast =
      run_graph(single.graph, arguments, {.kernels = cpu_kernels(), .check_in_place = true});
  for (const Node& node : single.graph.nodes())
    if (node.op->name() != "epilogue")  // equals two ops bit for bit: epilogue_test
      expect_rounded_once(single.graph, node, fast, rng);
  if (!c.no_bf16_in_turn.empty()) return;

  const Contents oracle = run_graph(twice.graph, exact, {reference_kernels()});
  const auto results = results_of(single);
  std::vector<std::vector<double>> expected;
  for (ValueId v : results_of(twice)) expected.push_back(values_of(twice.graph, oracle, v));
  ASSERT_EQ(results.size(), expected.size());
  std::vector<double> effect;  // computed only if a result fails without it
  for (std::size_t i = 0; i < results.size(); ++i) {
    const double off = difference(values_of(single.graph, fast, results[i]), expected[i]);
    const double own = kBf16Rounding * norm(expected[i]);
    if (off <= kRoundingsInTurn * own) continue;
    if (effect.empty()) effect = effect_of_rounding(twice, exact, expected, kBf16Rounding, rng);
    EXPECT_LE(off, kRoundingsInTurn * (own + effect[i])) << "result " << i;
  }
}

}  // namespace tandem::testing
