#include <tandem/nn/summary.h>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/graph_ops.h>
#include <tandem/core/trace.h>

namespace tandem::nn {
namespace {

struct Line {
  std::string module;
  TensorType output{};
  std::int64_t parameters = 0, bytes = 0;
  double flops = 0;
};

// The module that a parameter belongs to: its path without the last name.
std::string owner(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string() : path.substr(0, dot);
}

Line& line_of(std::vector<Line>& lines, const std::string& module) {
  const auto found =
      std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.module == module; });
  if (found != lines.end()) return *found;
  return lines.emplace_back(Line{module});
}

std::vector<Line> lines_of(const Graph& g) {
  std::vector<Line> lines;
  for (const Node& n : g.nodes()) {
    const bool outside = n.inputs.empty() || n.outputs.empty() || dynamic_cast<const Assign*>(n.op.get());
    if (outside || view_of(g, n)) continue;
    Line& line = line_of(lines, n.tag.path);
    if (g.type(n.outputs[0]).bytes() >= line.output.bytes() || line.bytes == 0)
      line.output = g.type(n.outputs[0]);
    line.flops += n.op->cost(g.types(n.inputs), g.types(n.outputs)).flops;
    for (ValueId v : n.outputs) line.bytes += g.type(v).bytes();
  }
  for (const StateSlot& s : g.slots())
    if (s.trained) line_of(lines, owner(s.path)).parameters += s.type.elements();
  return lines;
}

std::string row(const std::string& name, const std::string& output, const Line& l) {
  return fmt::format("{:<28} {:<24} {:>12} {:>12.1f} {:>14.3f}\n", name, output, l.parameters, l.flops / 1e6,
                     static_cast<double>(l.bytes) / 1e6);
}

}  // namespace

std::string summary(const Graph& forward) {
  std::string text = fmt::format("{:<28} {:<24} {:>12} {:>12} {:>14}\n", "module", "output", "parameters",
                                 "MFLOP", "activations MB");
  Line total;
  for (const Line& l : lines_of(forward)) {
    text += row(l.module.empty() ? "(model)" : l.module, l.output.bytes() > 0 ? to_string(l.output) : "", l);
    total.parameters += l.parameters;
    total.flops += l.flops;
    total.bytes += l.bytes;
  }
  return text + row("total", "", total);
}

std::string summary(Module& model, const TensorType& input) {
  Graph graph;
  {
    Trace trace(graph);
    trace.result("output", model(trace.input("input", input)));
  }
  return summary(graph);
}

}  // namespace tandem::nn
