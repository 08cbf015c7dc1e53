// Ops give PyTorch's numbers, forward and backward, which tests/golden/make_ops.py wrote to
// tests/golden/ops.json.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

#include "declared_ops.h"
#include "golden_ops.h"
#include "op_case.h"
#include "test_files.h"

namespace tandem::testing {
using namespace engine;
namespace {

using nlohmann::json;

json golden_cases() { return read_json(TANDEM_SOURCE "/tests/golden/ops.json")["cases"]; }

Tensor tensor_of(const json& t) {
  return Tensor::from(t["values"].get<std::vector<double>>(), t["shape"].get<Shape>(),
                      dtype_from_name(t["dtype"].get<std::string>()));
}

bool is_differentiated(const json& input) { return input["dtype"] == "f64" && !input.contains("fixed"); }

void expect_near(const json& expected, const Tensor& actual, const std::string& what) {
  const Tensor e = tensor_of(expected);
  ASSERT_EQ(e.type(), actual.type()) << what;
  const auto wanted = e.values(), given = actual.values();
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(wanted[i], given[i], 1e-12 * std::max(1.0, std::fabs(wanted[i])))
        << what << ", element " << i;
}

void expect_golden(const json& c, const std::function<Tensors(const Tensors&)>& function) {
  Tensors inputs;
  for (const json& t : c["inputs"]) {
    inputs.push_back(tensor_of(t));
    if (is_differentiated(t)) inputs.back().requires_grad();
  }
  const Tensors outputs = function(inputs);
  ASSERT_EQ(c["outputs"].size(), outputs.size());
  Tensor loss = Tensor::zeros({DType::f64, {}});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    expect_near(c["outputs"][i], outputs[i], "output " + std::to_string(i));
    if (!c["cotangents"][i].is_null()) loss = loss + sum(outputs[i] * tensor_of(c["cotangents"][i]));
  }
  if (loss.needs_grad()) loss.backward();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const json& expected = c["grads"][i];
    ASSERT_EQ(expected.is_null(), !inputs[i].grad().defined()) << "gradient " << i;
    if (!expected.is_null()) expect_near(expected, inputs[i].grad(), "gradient " + std::to_string(i));
  }
}

TEST(GoldenOps, ValuesAndGradientsArePyTorchs) {
  const GoldenOps ops = golden_ops();
  const json cases = golden_cases();
  EXPECT_EQ(cases.size(), ops.size());
  for (const json& c : cases) {
    const auto name = c["name"].get<std::string>();
    SCOPED_TRACE(name);
    ASSERT_TRUE(ops.contains(name));
    expect_golden(c, ops.at(name));
  }
}

// Ops that PyTorch cannot give numbers for.
const std::map<std::string, std::string> kWithoutGolden{
    {"dropout", "draws by Tandem's own generator: training_ops_test"},
    {"read", "state"},
    {"assign", "state"},
    {"input", "the host's data"},
    {"result", "the host's data"},
    {"detach", "keeps the value: constructs_test"},
    {"noise", "draws by Tandem's own generator: op_cases_test"},
    {"index32", "keeps the numbers: op_cases_test"},
    {"copy", "moves a value, between devices or in memory: op_cases_test"},
    {"copy_out", "moves a value, between devices or in memory: op_cases_test"},
    {"copy_in", "moves a value, between devices or in memory: op_cases_test"},
    {"all_reduce", "needs ranks: collective_test"},
    {"send", "needs ranks: collective_test"},
    {"receive", "needs ranks: collective_test"},
    {"sparse_sgd_update", "has the bits of embedding_grad and sgd_update: sparse_updates_test"},
    {"all_gather", "needs ranks: collective_test"},
    {"barrier", "needs ranks: collective_test"},
    {"timer", "takes time, and its output is empty: collective_test"},
    {"batch_norm_statistics", "a part of batch_norm, with its bits: fuse_pointwise_test"},
    {"epilogue", "a product and an expression, with their bits: epilogue_test"},
    {"term cast", "what fusing makes of a store between two expressions: pointwise_test"},
    {"mapped", "runs other ops model by model: op_cases_test"},
    {"varied", "becomes a mapped op: model_array_test"},
};

// The graph of a case, forward and backward.
Graph traced(const json& c, const std::function<Tensors(const Tensors&)>& function) {
  OpCase as_case{c["name"], {}, function};
  for (const json& t : c["inputs"]) {
    const Tensor input = tensor_of(t);
    as_case.inputs.push_back({input.type()});
    as_case.inputs.back().differentiable = is_differentiated(t);
  }
  return trace_case(as_case, DType::f64, true).graph;
}

TEST(GoldenOps, CoverAllOpsAndAllPointwiseTerms) {
  const GoldenOps ops = golden_ops();
  std::set<std::string> covered;
  for (const json& c : golden_cases()) {
    const Graph graph = traced(c, ops.at(c["name"]));
    for (const Node& node : graph.nodes()) {
      covered.emplace(node.op->name());
      if (const auto* expression = as<PointwiseOp>(node))
        for (const PointwiseTerm& i : expression->expression)
          covered.insert("term " + std::string(name_of(i.code)));
    }
  }
  const std::filesystem::path source(TANDEM_SOURCE);
  std::set<std::string> declared = declared_ops(source / "core" / "graph");
  declared.merge(declared_ops(source / "ops"));
  EXPECT_GE(declared.size(), 20u) << "the headers were not read";
  for (int code = 0; code <= static_cast<int>(PointwiseCode::where); ++code)
    declared.insert("term " + std::string(name_of(static_cast<PointwiseCode>(code))));
  for (const auto& [op, reason] : kWithoutGolden) {
    EXPECT_TRUE(declared.contains(op)) << "no op '" << op << "' is left";
    EXPECT_FALSE(covered.contains(op)) << "op '" << op << "' has a case; remove it from the list";
  }
  for (const std::string& op : declared)
    EXPECT_TRUE(covered.contains(op) || kWithoutGolden.contains(op))
        << "'" << op << "' has neither PyTorch's numbers nor a reason for having none";
}

}  // namespace
}  // namespace tandem::testing
