#include <tandem/nn/summary.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>

namespace tandem::nn {
using namespace engine;
namespace {

struct Line {
  std::string module;
  TensorType output{};
  std::int64_t trained = 0, kept = 0, bytes = 0;  // elements that are trained, elements that are not
  double flops = 0;
};

// The module that a parameter belongs to: its path without the last name.
std::string owner(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string() : path.substr(0, dot);
}

Line& line_of(std::vector<Line>& lines, const std::string& module) {
  const auto found = std::ranges::find(lines, module, &Line::module);
  return found != lines.end() ? *found : lines.emplace_back(Line{module});
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

std::vector<Line> lines_of(const Graph& g) {
  std::vector<Line> lines;
  const std::vector<bool> used = used_elsewhere(g);
  for (const Node& n : g.nodes()) {
    const bool outside = n.inputs.empty() || n.outputs.empty() || as<AssignOp>(n);
    if (outside || view_of(g, n) || as<DetachOp>(n)) continue;
    Line& line = line_of(lines, n.tag.path);
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

std::string row(const std::string& name, const std::string& output, const Line& l) {
  return fmt::format("{:<28} {:<24} {:>12} {:>12} {:>12.1f} {:>14.3f}\n", name, output, l.trained, l.kept,
                     l.flops / 1e6, static_cast<double>(l.bytes) / 1e6);
}

}  // namespace

std::string summary(const Graph& forward) {
  std::string text = fmt::format("{:<28} {:<24} {:>12} {:>12} {:>12} {:>14}\n", "module", "output", "trained",
                                 "not trained", "MFLOP", "activations MB");
  Line total;
  for (const Line& l : lines_of(forward)) {
    text += row(l.module.empty() ? "(model)" : l.module, l.output.bytes() > 0 ? to_string(l.output) : "", l);
    total.trained += l.trained;
    total.kept += l.kept;
    total.flops += l.flops;
    total.bytes += l.bytes;
  }
  return text + row("total", "", total);
}

std::string summary(const std::function<Tensor(const Tensors&)>& forward,
                    const std::vector<TensorType>& inputs) {
  Graph graph;
  {
    Trace trace(graph);
    Tensors traced;
    for (const TensorType& type : inputs)
      traced.push_back(trace.input(fmt::format("input {}", traced.size()), type));
    trace.result("output", forward(traced));
  }
  return summary(graph);
}

std::string summary(Module& model, const TensorType& input) {
  return summary([&](const Tensors& in) { return model(in[0]); }, {input});
}

}  // namespace tandem::nn
