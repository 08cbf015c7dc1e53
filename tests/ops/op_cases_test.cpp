// Every op has cases, or a reason for having none.
#include <filesystem>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/pointwise.h>

#include "declared_ops.h"
#include "expect_error.h"
#include "op_case_test.h"

namespace tandem::testing {
using namespace engine;
namespace {

OpCases all_cases() {
  OpCases all;
  for (auto* family : {pointwise_cases, reduce_cases, shape_cases, attention_cases, lstm_cases, loss_cases,
                       random_cases, update_cases, matmul_cases, conv_cases, pool_cases, norm_cases})
    for (auto& c : family()) all.push_back(std::move(c));
  return all;
}

// Ops that no case checks, and where they are checked.
const std::map<std::string, std::string> kWithoutCase{
    {"read", "state: executor and engine tests"},
    {"assign", "state: executor and engine tests"},
    {"input", "the host's data: executor and engine tests"},
    {"result", "the host's data: executor and engine tests"},
    {"constant", "fixed contents, nothing to differentiate: used by the cases of others"},
    {"all_reduce", "needs ranks: collective_test"},
    {"send", "needs ranks: collective_test"},
    {"receive", "needs ranks: collective_test"},
    {"barrier", "needs ranks: collective_test"},
    {"all_gather", "needs ranks: collective_test"},
    {"timer", "takes time, and its output is empty: collective_test"},
    {"detach", "differentiation stops there, and no Program computes it: constructs_test"},
    {"mapped", "made by the vmap rules of others, and checked by their cases"},
    {"varied", "becomes a mapped op before anything computes it: model_array_test"},
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Ops, OpCaseTest, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(OpRegistryTest, EveryOpHasACaseOrAReason) {
  std::set<std::string> covered;
  for (const OpCase& c : all_cases()) {
    const TracedCase t = trace_case(c, DType::f32, true);
    for (const Node& node : t.graph.nodes()) covered.insert(std::string(node.op->name()));
    if (!c.no_vmap.empty()) continue;
    const VmappedCase mapped = vmap_case(t, std::vector<bool>(t.inputs.size(), true), 2);
    for (const Node& node : mapped.graph.nodes()) covered.insert(std::string(node.op->name()));
  }
  const std::filesystem::path source(TANDEM_SOURCE);
  std::set<std::string> declared = declared_ops(source / "core" / "graph");
  declared.merge(declared_ops(source / "ops"));
  EXPECT_GE(declared.size(), 20u) << "the headers were not read";
  for (const std::string& op : declared)
    EXPECT_TRUE(covered.contains(op) || kWithoutCase.contains(op))
        << "op '" << op << "' has neither a case nor a reason for having none";
  for (const auto& [op, reason] : kWithoutCase)
    EXPECT_TRUE(declared.contains(op)) << "no op '" << op << "' is left";
}

// Ops that cannot be differentiated twice, and a word of the error that names the alternative.
const std::map<std::string, std::string> kFused{{"attention", "compute attention by matmul and softmax"},
                                                {"lstm", "compute the steps by matmul, sigmoid and tanh"},
                                                {"group_norm", "compose the norm from mean(), variance()"}};

// Ops without a derivative: their cases say why, and check that a derivative is refused.
const std::set<std::string> kConstant{"first_extreme", "arg_extreme", "one_hot", "index32",          "noise",
                                      "sgd_update",    "adam_update", "predict", "sparse_sgd_update"};

std::set<std::string> ops_of(const Graph& graph) {
  std::set<std::string> ops;
  for (const Node& node : graph.nodes()) {
    ops.emplace(node.op->name());
    if (const auto* expression = as<PointwiseOp>(node))
      for (const PointwiseTerm& i : expression->expression)
        ops.insert("term " + std::string(name_of(i.code)));
  }
  return ops;
}

std::string refusal(const OpCase& c) {
  try {
    trace_case(derivative_of(c), DType::f64, true);
  } catch (const NoRule& e) {
    return e.what();
  }
  return "";
}

// The case of a derivative compares second derivatives with finite differences.
TEST(OpRegistryTest, EveryOpIsDifferentiatedTwiceOrSaysWhyNot) {
  std::set<std::string> once, twice;
  for (const OpCase& c : all_cases()) {
    const OpCase& base = c.derivative_of ? *c.derivative_of : c;
    if (!base.no_gradient.empty()) continue;
    const std::set<std::string> ops = ops_of(trace_case(base, DType::f64, false).graph);
    once.insert(ops.begin(), ops.end());
    if (c.derivative_of && c.no_gradient.empty() && c.no_finite_difference.empty())
      twice.insert(ops.begin(), ops.end());
    for (const auto& [fused, instead] : kFused) {
      if (!ops.contains(fused)) continue;
      EXPECT_NE(refusal(base).find(instead), std::string::npos) << base.name;
    }
  }
  for (const std::string& op : once)
    EXPECT_TRUE(twice.contains(op) || kFused.contains(op) || kConstant.contains(op))
        << "second derivatives of '" << op << "' are neither checked nor refused";
  for (const auto& [fused, instead] : kFused) {
    EXPECT_TRUE(once.contains(fused)) << fused;
    EXPECT_FALSE(twice.contains(fused)) << fused;
  }
}

// Losses, weights, and the optimizer's statistics are f32 also in mixed precision.
const std::set<std::string> kRefuseBf16{"cross_entropy", "cross_entropy_grad", "sgd_update", "adam_update",
                                        "predict",       "sparse_sgd_update"};

TEST(OpRegistryTest, ExactlyTheListedOpsRefuseBf16) {
  std::set<std::string> refuse;
  for (const OpCase& c : all_cases()) {
    const Graph graph = trace_case(c, DType::f32, true).graph;
    bool any = false;
    for (const Node& node : graph.nodes()) {
      if (!kRefuseBf16.contains(std::string(node.op->name()))) continue;
      any = true;
      refuse.emplace(node.op->name());
      Types narrow = graph.types(node.inputs);
      for (TensorType& t : narrow)
        if (t.dtype == DType::f32) t.dtype = DType::bf16;
      expect_error([&] { node.op->infer(narrow); }, {c.no_bf16, "bf16"});
    }
    // All other cases run in bf16. The general cross entropy is made of ops that would not refuse it.
    EXPECT_EQ(any || c.name.starts_with("cross_entropy_s"), !c.no_bf16.empty()) << c.name;
  }
  EXPECT_EQ(refuse, kRefuseBf16);
}

TEST(OpRegistryTest, CaseNamesAreUnique) {
  std::set<std::string> names;
  for (const OpCase& c : all_cases()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

TEST(OpRegistryTest, EveryDeclaredOpHasAReferenceKernel) {
  const std::filesystem::path source(TANDEM_SOURCE);
  for (const std::string& op : declared_ops(source / "ops"))
    EXPECT_TRUE(reference_kernels().has(op) || op == "varied") << op;
}

}  // namespace tandem::testing
