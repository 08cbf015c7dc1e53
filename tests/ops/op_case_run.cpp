// Runs graphs in fenced memory and checks everything that a kernel must not touch.
#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/team.h>
#include <tandem/ops/epilogue.h>
#include <tandem/ops/mapped.h>

#include "allocations.h"
#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

// oneDNN allocates a list of arguments at each run of a primitive.
bool runs_a_library(const Op& op) {
  if (const auto* mapped = dynamic_cast<const MappedOp*>(&op)) return runs_a_library(*mapped->inner);
  if (const auto* epilogue = dynamic_cast<const EpilogueOp*>(&op)) return runs_a_library(*epilogue->product);
  return op.name() == "matmul" || op.name().starts_with("conv2d") || op.name().starts_with("attention") ||
         op.name().starts_with("lstm");
}

std::vector<std::byte> bytes_of(const Fenced& f) { return {f.data(), f.data() + f.bytes()}; }

// One node of a graph, prepared to be launched in fenced memory.
class NodeRun {
 public:
  NodeRun(const Graph& graph, const Node& node, const Contents& values, const RunOptions& options)
      : node_(node),
        values_(values),
        options_(options),
        in_(graph.types(node.inputs)),
        out_(graph.types(node.outputs)) {
    kernel_ = options.kernels.make({*node.op, in_, out_, node.tag, options.threads});
  }

  // Launches the kernel. Each output has its own memory, unless `aliases` puts it into an input's.
  std::vector<std::vector<std::byte>> launch(const std::vector<Alias>& aliases) const {
    std::map<ValueId, Fenced> inputs;
    for (ValueId v : node_.inputs)
      if (!inputs.contains(v)) {
        const auto& contents = values_.at(v);
        const auto it = inputs.emplace(v, Fenced(static_cast<std::int64_t>(contents.size()), 0)).first;
        std::copy(contents.begin(), contents.end(), it->second.data());
      }
    std::vector<Fenced> outputs;
    std::set<ValueId> overwritten;
    for (std::size_t o = 0; o < out_.size(); ++o) {
      const auto alias = std::find_if(aliases.begin(), aliases.end(),
                                      [&](const Alias& a) { return a.output == static_cast<int>(o); });
      if (alias == aliases.end()) {
        outputs.emplace_back(out_[o].bytes(), options_.poison);
      } else {
        const ValueId v = node_.inputs[static_cast<std::size_t>(alias->input)];
        outputs.push_back(inputs.at(v));
        overwritten.insert(v);
      }
    }
    execute(inputs, outputs);
    std::vector<std::vector<std::byte>> results;
    for (const auto& f : outputs) results.push_back(bytes_of(f));
    for (const auto& [v, f] : inputs) {
      EXPECT_TRUE(f.intact()) << node_.op->name() << " wrote outside an input";
      if (overwritten.contains(v)) continue;
      EXPECT_EQ(bytes_of(f), values_.at(v)) << node_.op->name() << " changed an input";
    }
    return results;
  }

 private:
  void execute(const std::map<ValueId, Fenced>& inputs, const std::vector<Fenced>& outputs) const {
    const Fenced workspace(kernel_->workspace(), options_.poison);
    std::vector<const void*> in;
    std::vector<void*> out;
    for (ValueId v : node_.inputs) in.push_back(inputs.at(v).data());
    for (const auto& f : outputs) out.push_back(f.data());
    const RankContext alone;
    const TeamSize team(options_.threads);
    const long before = allocations();
    kernel_->run({in.data(), out.data(), workspace.data(), 3, &alone});
    EXPECT_TRUE(allocations() == before || runs_a_library(*node_.op))
        << node_.op->name() << " allocated memory while it ran";
    EXPECT_TRUE(workspace.intact()) << node_.op->name() << " wrote outside its workspace";
    for (const auto& f : outputs) EXPECT_TRUE(f.intact()) << node_.op->name() << " wrote outside an output";
  }

  const Node& node_;
  const Contents& values_;
  const RunOptions& options_;
  Types in_, out_;
  KernelPtr kernel_;
};

void check_in_place(const NodeRun& run, const Node& node, const Types& in, const Types& out,
                    const std::vector<std::vector<std::byte>>& expected) {
  std::vector<Alias> together;  // as many as possible at once
  std::vector<std::vector<Alias>> choices;
  for (const Alias& a : node.op->may_alias(in)) {
    ASSERT_LT(static_cast<std::size_t>(a.output), out.size());
    ASSERT_LT(static_cast<std::size_t>(a.input), in.size());
    ASSERT_EQ(in[static_cast<std::size_t>(a.input)].bytes(), out[static_cast<std::size_t>(a.output)].bytes())
        << node.op->name() << " declares an alias between values of different size";
    choices.push_back({a});
    const auto clash = [&](const Alias& b) {
      return a.output == b.output ||
             node.inputs[static_cast<std::size_t>(a.input)] == node.inputs[static_cast<std::size_t>(b.input)];
    };
    if (std::none_of(together.begin(), together.end(), clash)) together.push_back(a);
  }
  if (together.size() > 1) choices.push_back(together);
  for (const auto& choice : choices)
    EXPECT_EQ(run.launch(choice), expected)
        << node.op->name() << " in place, output " << choice[0].output << " on input " << choice[0].input;
}

}  // namespace

Contents run_graph(const Graph& graph, const std::map<ValueId, Tensor>& arguments,
                   const RunOptions& options) {
  Contents values;
  for (const auto& [v, tensor] : arguments) {
    if (tensor.type() != graph.type(v))
      throw Error(
          fmt::format("argument {} is {}, not {}", v, to_string(tensor.type()), to_string(graph.type(v))));
    const auto* data = static_cast<const std::byte*>(tensor.data());
    values[v] = {data, data + tensor.type().bytes()};
  }
  for (const Node& node : graph.nodes()) {
    const NodeRun run(graph, node, values, options);
    const auto results = run.launch({});
    if (options.check_in_place)
      check_in_place(run, node, graph.types(node.inputs), graph.types(node.outputs), results);
    for (std::size_t o = 0; o < results.size(); ++o) values[node.outputs[o]] = results[o];
  }
  return values;
}

}  // namespace tandem::testing
