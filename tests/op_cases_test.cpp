// Every op has cases, or a reason to have none.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "op_case_test.h"

namespace tandem::test {
namespace {

OpCases all_cases() {
  OpCases all;
  for (auto* family : {pointwise_cases, reduce_cases, shape_cases, loss_cases, random_cases, update_cases,
                       matmul_cases, conv_cases, pool_cases, norm_cases})
    for (auto& c : family()) all.push_back(std::move(c));
  return all;
}

// Ops that are not checked by cases, and where they are.
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
    {"mapped", "made by the batching rules of others, and checked by their cases"},
};

// The names of the op classes that the headers of a folder declare.
std::set<std::string> declared_ops(const std::filesystem::path& folder) {
  std::set<std::string> names;
  const std::regex name(R"(string_view name\(\) const override \{ return "([a-z_0-9]+)\"; \})");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".h") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string contents = text.str();
    for (std::sregex_iterator i(contents.begin(), contents.end(), name), end; i != end; ++i)
      names.insert((*i)[1]);
  }
  return names;
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Ops, OpCaseTest, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(OpRegistryTest, EveryOpHasACaseOrAReason) {
  std::set<std::string> covered;
  for (const OpCase& c : all_cases()) {
    const TracedCase t = trace_case(c, DType::f32, true);
    for (const Node& node : t.graph.nodes()) covered.insert(std::string(node.op->name()));
    if (!c.no_batch.empty()) continue;
    const BatchedCase batched = batch_case(t, std::vector<bool>(t.inputs.size(), true), 2);
    for (const Node& node : batched.graph.nodes()) covered.insert(std::string(node.op->name()));
  }
  const std::filesystem::path source(TANDEM_SOURCE_DIR);
  std::set<std::string> declared = declared_ops(source / "core");
  declared.merge(declared_ops(source / "ops"));
  EXPECT_GE(declared.size(), 20u) << "the headers were not read";
  for (const std::string& op : declared)
    EXPECT_TRUE(covered.contains(op) || kWithoutCase.contains(op))
        << "op '" << op << "' has neither a case nor a reason";
  for (const auto& [op, reason] : kWithoutCase)
    EXPECT_TRUE(declared.contains(op)) << "no op '" << op << "' is left";
}

TEST(OpRegistryTest, CaseNamesAreUnique) {
  std::set<std::string> names;
  for (const OpCase& c : all_cases()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

TEST(OpRegistryTest, EveryDeclaredOpHasAReferenceKernel) {
  const std::filesystem::path source(TANDEM_SOURCE_DIR);
  for (const std::string& op : declared_ops(source / "ops")) EXPECT_TRUE(reference_kernels().has(op)) << op;
}

}  // namespace tandem::test
