#include <tandem/nn/summary.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>

namespace tandem::nn {
using namespace engine;
namespace {

// The module that a parameter belongs to: its path without the last name.
std::string owner(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string() : path.substr(0, dot);
}

ModuleSummary& line_of(std::vector<ModuleSummary>& lines, const std::string& module) {
  const auto found = std::ranges::find(lines, module, &ModuleSummary::module);
  return found != lines.end() ? *found : lines.emplace_back(ModuleSummary{module});
}

// The values that another module or the host reads, directly or through views.
std::vector<bool> used_elsewhere(const Graph& g) {
  std::vector<bool> used(g.values().size());
  for (auto n = g.nodes().rbegin(); n != g.nodes().rend(); ++n) {
    if (as<AssignOp>(*n)) continue;
    for (ValueId v : n->inputs) {
      const NodeId maker = g.value(v).producer;
      const bool passed_on = view_of(g, *n) && used[static_cast<std::size_t>(n->outputs[0])];
      if (maker >= 0 && (passed_on || g.node(maker).tag.path != n->tag.path || as<ResultOp>(*n)))
        used[static_cast<std::size_t>(v)] = true;
    }
  }
  return used;
}

std::string row(const std::string& name, const std::string& output, const ModuleSummary& l) {
  return fmt::format("{:<28} {:<24} {:>12} {:>12} {:>12.1f} {:>14.3f}\n", name, output, l.trained, l.kept,
                     l.flops / 1e6, static_cast<double>(l.bytes) / 1e6);
}

}  // namespace

std::vector<ModuleSummary> module_summaries(const Graph& g) {
  std::vector<ModuleSummary> lines;
  const std::vector<bool> used = used_elsewhere(g);
  for (const Node& n : g.nodes()) {
    const bool outside = n.inputs.empty() || n.outputs.empty() || as<AssignOp>(n);
    if (outside || view_of(g, n) || as<DetachOp>(n)) continue;
    ModuleSummary& line = line_of(lines, n.tag.path);
    if (line.bytes == 0) line.output = g.type(n.outputs[0]);
    for (ValueId v : n.outputs)
      if (used[static_cast<std::size_t>(v)]) line.output = g.type(v);
    line.flops += n.op->cost(g.types(n.inputs), g.types(n.outputs)).flops;
    for (ValueId v : n.outputs) line.bytes += g.type(v).bytes();
  }
  for (const State& s : g.states())
    (s.trained ? line_of(lines, owner(s.path)).trained : line_of(lines, owner(s.path)).kept) +=
        s.type.elements();
  return lines;
}

ModuleSummary total(const std::vector<ModuleSummary>& modules) {
  ModuleSummary total{"total"};
  for (const ModuleSummary& m : modules) {
    total.trained += m.trained;
    total.kept += m.kept;
    total.flops += m.flops;
    total.bytes += m.bytes;
  }
  return total;
}

Graph traced_forward(const std::function<Tensors(const Tensors&)>& forward,
                     const std::vector<TensorType>& inputs) {
  Graph graph;
  Trace trace(graph);
  Tensors traced;
  for (const TensorType& type : inputs)
    traced.push_back(trace.input(fmt::format("input {}", traced.size()), type));
  const Tensors outputs = forward(traced);
  for (std::size_t i = 0; i < outputs.size(); ++i) trace.result(fmt::format("output {}", i), outputs[i]);
  return graph;
}

std::string summary(const Graph& forward) {
  std::string text = fmt::format("{:<28} {:<24} {:>12} {:>12} {:>12} {:>14}\n", "module", "output", "trained",
                                 "not trained", "MFLOP", "activations MB");
  const std::vector<ModuleSummary> modules = module_summaries(forward);
  for (const ModuleSummary& m : modules)
    text += row(m.module.empty() ? "(model)" : m.module, m.output.bytes() > 0 ? to_string(m.output) : "", m);
  return text + row("total", "", total(modules));
}

std::string summary(const std::function<Tensor(const Tensors&)>& forward,
                    const std::vector<TensorType>& inputs) {
  return summary(traced_forward([&](const Tensors& in) { return Tensors{forward(in)}; }, inputs));
}

std::string summary(Module& model, const TensorType& input) {
  return summary([&](const Tensors& in) { return model(in[0]); }, {input});
}

}  // namespace tandem::nn
