#include "op_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/pointwise.h>

namespace tandem::testing {
using namespace engine;
namespace {

// All nodes of a case share one tag, so that random ops draw the same numbers in the plain and in the vmapped
// graph.
Tag case_tag(Phase phase) {
  Tag tag;
  tag.phase = phase;
  tag.path = "case";
  tag.rng_id = 0x7a6e64656d;
  return tag;
}

double draw_uniform(const InputSpec& spec, std::mt19937_64& rng) {
  if (!is_floating(spec.type.dtype) || spec.fill == Fill::whole)
    return static_cast<double>(std::uniform_int_distribution<std::int64_t>(
        static_cast<std::int64_t>(spec.low), static_cast<std::int64_t>(spec.high))(rng));
  std::uniform_real_distribution<double> uniform(spec.low, spec.high);
  for (int attempt = 0; attempt < 1000; ++attempt)
    if (const double x = uniform(rng); std::fabs(x) >= spec.gap) return x;
  throw Error(fmt::format("no value in [{}, {}] is {} away from zero", spec.low, spec.high, spec.gap));
}

}  // namespace

InputSpec f32(Shape shape, double low, double high, double gap) {
  return {{DType::f32, std::move(shape)}, low, high, gap};
}
InputSpec f32_distinct(Shape shape, double low, double high) {
  return {{DType::f32, std::move(shape)}, low, high, 0, Fill::distinct};
}
InputSpec f32_whole(Shape shape, double low, double high) {
  return {{DType::f32, std::move(shape)}, low, high, 0, Fill::whole};
}
InputSpec f32_wide(Shape shape, double low, double high) {
  InputSpec spec = f32(std::move(shape), low, high);
  spec.wide = true;
  return spec;
}
InputSpec i32(Shape shape, double low, double high) { return {{DType::i32, std::move(shape)}, low, high}; }
InputSpec i64(Shape shape, double low, double high) { return {{DType::i64, std::move(shape)}, low, high}; }
InputSpec b8(Shape shape) { return {{DType::b8, std::move(shape)}, 0, 1}; }

std::ostream& operator<<(std::ostream& out, const OpCase& c) { return out << c.name; }

std::string shape_name(const Shape& shape) {
  return shape.empty() ? "0d" : fmt::format("{}", fmt::join(shape, "x"));
}

Tensor draw(const InputSpec& spec, std::size_t index, std::size_t inputs, std::mt19937_64& rng) {
  Tensor tensor = Tensor::empty(spec.type);
  const std::int64_t n = tensor.elements();
  if (spec.fill != Fill::distinct) {
    for (std::int64_t i = 0; i < n; ++i)
      store_element(tensor.dtype(), tensor.data(), i, draw_uniform(spec, rng));
    return tensor;
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), rng);
  const double step = (spec.high - spec.low) / static_cast<double>(n);
  const double phase = (static_cast<double>(index) + 0.5) / static_cast<double>(inputs);
  for (std::int64_t i = 0; i < n; ++i)
    store_element(tensor.dtype(), tensor.data(), i,
                  spec.low + (static_cast<double>(order[static_cast<std::size_t>(i)]) + phase) * step);
  return tensor;
}

TracedCase trace_case(const OpCase& c, DType precision, bool gradients) {
  TracedCase traced;
  Trace trace(traced.graph);
  trace.set_tag(case_tag(Phase::forward));
  const auto argument = [&](TensorType type, std::vector<ValueId>& list) {
    list.push_back(traced.graph.add_value(std::move(type)));
    return trace.tensor(list.back());
  };
  Tensors inputs, differentiable;
  for (const InputSpec& spec : c.inputs) {
    TensorType type = spec.type;
    if (type.dtype == DType::f32 && !(spec.wide && precision == DType::bf16)) type.dtype = precision;
    inputs.push_back(argument(type, traced.inputs));
    if (spec.differentiable && is_floating(type.dtype)) differentiable.push_back(inputs.back());
  }
  const Tensors outputs = c.apply(inputs);
  for (const auto& t : outputs) traced.outputs.push_back(trace.value(t));
  if (!gradients || !c.no_gradient.empty()) return traced;

  Tensors grads;
  for (const auto& t : outputs)
    grads.push_back(is_floating(t.dtype()) ? argument(t.type(), traced.cotangents) : Tensor());
  trace.set_tag(case_tag(Phase::backward));
  for (const auto& t : differentiate_here(0, differentiable, outputs, grads))
    traced.gradients.push_back(t ? trace.value(t) : ValueId());
  return traced;
}

Tensors differentiate_here(NodeId first, const Tensors& inputs, const Tensors& outputs,
                           const Tensors& grads) {
  Trace& trace = *Trace::current();
  const NodeId end = trace.graph().nodes().next_id();
  std::map<ValueId, Tensor> gradient;
  const auto accumulate = [&](ValueId v, const Tensor& g) {
    if (!g) return;
    EXPECT_EQ(to_string(g.type()), to_string(trace.graph().type(v)))
        << "a gradient must have the type of its value";
    gradient[v] = gradient[v] ? add(gradient[v], g) : g;
  };
  std::vector<bool> reaches(trace.graph().values().size(), false);  // depends on an input
  for (const auto& t : inputs) reaches[static_cast<std::size_t>(trace.value(t))] = true;
  for (NodeId id = first; id < end; ++id)
    for (ValueId in : trace.graph().node(id).inputs)
      if (reaches[static_cast<std::size_t>(in)])
        for (ValueId out : trace.graph().node(id).outputs) reaches[static_cast<std::size_t>(out)] = true;

  for (std::size_t i = 0; i < outputs.size(); ++i) accumulate(trace.value(outputs[i]), grads[i]);
  for (NodeId id = end; id-- > first;) {
    const Node node = trace.graph().node(id);  // a copy: the graph grows
    Tensors in, out, out_grads;
    std::vector<bool> needed;
    bool any = false;
    for (ValueId v : node.inputs) {
      in.push_back(trace.tensor(v));
      needed.push_back(reaches[static_cast<std::size_t>(v)] && is_floating(trace.graph().type(v).dtype));
    }
    for (ValueId v : node.outputs) {
      out.push_back(trace.tensor(v));
      out_grads.push_back(gradient[v]);
      any |= gradient[v].defined();
    }
    if (!any || std::find(needed.begin(), needed.end(), true) == needed.end()) continue;
    const Tensors result = node.op->vjp({in, out, out_grads, needed});
    EXPECT_EQ(result.size(), node.inputs.size()) << node.op->name() << "'s derivative rule";
    for (std::size_t i = 0; i < result.size(); ++i)
      if (needed[i]) accumulate(node.inputs[i], result[i]);
  }
  Tensors results;
  for (const auto& t : inputs) results.push_back(gradient[trace.value(t)]);
  return results;
}

OpCase derivative_of(const OpCase& c) {
  OpCase d = c;
  d.name += "_derivative";
  d.derivative_of = std::make_shared<const OpCase>(c);
  // The outputs' types, for the cotangents that become inputs.
  const TracedCase traced = trace_case(c, DType::f32, false);
  const TracedCase narrow = trace_case(c, c.no_bf16.empty() ? DType::bf16 : DType::f32, false);
  for (std::size_t i = 0; i < traced.outputs.size(); ++i) {
    d.inputs.push_back({traced.graph.type(traced.outputs[i])});
    d.inputs.back().wide = narrow.graph.type(narrow.outputs[i]).dtype == DType::f32;
  }
  d.apply = [c](const Tensors& all) {
    const auto split = all.begin() + static_cast<std::ptrdiff_t>(c.inputs.size());
    const Tensors inputs(all.begin(), split), grads(split, all.end());
    Tensors differentiable;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (c.inputs[i].differentiable && is_floating(inputs[i].dtype())) differentiable.push_back(inputs[i]);
    const auto first = Trace::current()->graph().nodes().next_id();
    const Tensors outputs = c.apply(inputs);
    Tensors defined;
    for (const auto& t : differentiate_here(first, differentiable, outputs, grads))
      if (t) defined.push_back(t);
    return defined;
  };
  return d;
}

std::vector<double> to_doubles(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = load_element(dtype, bytes.data(), static_cast<std::int64_t>(i));
  return values;
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (double x : values) sum += std::isfinite(x) ? x * x : 0;
  return std::sqrt(sum);
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinity;
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return kInfinity;
    if (!std::isnan(b[i]) && a[i] != b[i]) sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum);
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  return difference(a, b) / std::max(norm(b), 1e-30);
}

}  // namespace tandem::testing
