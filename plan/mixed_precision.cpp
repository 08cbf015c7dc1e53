#include <tandem/plan/mixed_precision.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/graph_rewrite.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem::engine {
namespace {

class Mixing {
 public:
  Mixing(const Graph& forward, DType low) : g_(forward), low_(low), rewrite_(forward) {
    find_full();
    for (const NodeId n : forward.nodes().ids()) add(forward.node(n), full_[n]);
  }
  Graph take() { return rewrite_.take(); }

 private:
  // Finds the nodes computed in full, and the expressions that only these read, as in a loss before its mean.
  void find_full() {
    const auto readers = g_.readers();
    full_.assign(g_.nodes().size(), false);
    for (auto n = g_.nodes().next_id(); n-- > 0;) {
      const Node& node = g_.node(n);
      full_[n] = node.op->precision() == Precision::full;
      if (!as<PointwiseOp>(node)) continue;
      const auto& all = readers[node.outputs[0]];
      full_[n] = !all.empty() && std::ranges::all_of(all, [&](NodeId r) { return full_[r]; });
    }
  }

  void add(const Node& n, bool full) {
    std::vector<ValueId> inputs = rewrite_.now(n.inputs);
    OpPtr op = n.op;
    switch (full ? Precision::full : n.op->precision()) {
      case Precision::low:
        for (ValueId& v : inputs)
          if (is(v, DType::f32)) v = cast_to(v, low_, n.tag);
        break;
      case Precision::follows:
        op = following(n, inputs);
        if (as<MovementOp>(*op) && any_low(inputs))
          for (ValueId& v : inputs) v = is(v, DType::f32) ? cast_to(v, low_, n.tag) : v;
        break;
      case Precision::full:
        for (std::size_t i = 0; i < inputs.size(); ++i)
          if (is(inputs[i], low_)) inputs[i] = cast_to(inputs[i], g_.type(n.inputs[i]).dtype, n.tag);
        break;
    }
    rewrite_.copy(n, std::move(op), std::move(inputs));
  }

  // An expression has a fixed output type: one of f32 gets `low_` if an input has it. The user's casts stay.
  OpPtr following(const Node& n, const std::vector<ValueId>& inputs) const {
    const auto* pointwise = as<PointwiseOp>(n);
    if (!pointwise || !any_low(inputs) || pointwise->dtype != DType::f32 || pointwise->expression.size() < 2)
      return n.op;
    return std::make_shared<PointwiseOp>(pointwise->expression, low_, pointwise->label());
  }

  bool any_low(const std::vector<ValueId>& values) const {
    return std::ranges::any_of(values, [&](ValueId v) { return is(v, low_); });
  }
  bool is(ValueId v, DType dtype) const { return rewrite_.graph().type(v).dtype == dtype; }

  // Casts a value once for all its readers.
  ValueId cast_to(ValueId v, DType dtype, const Tag& reader) {
    const auto [found, fresh] = casts_.try_emplace({v, dtype}, -1);
    if (fresh) {
      const auto cast = std::make_shared<PointwiseOp>(PointwiseExpression{{PointwiseCode::input, 0}}, dtype);
      found->second = rewrite_.add1(cast, {v}, reader.without_rng());
    }
    return found->second;
  }

  const Graph& g_;
  const DType low_;
  GraphRewrite rewrite_;
  IdVector<NodeId, bool> full_;  // by node
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

}  // namespace

Graph mixed_precision(const Graph& forward, DType dtype) {
  if (dtype != DType::bf16)
    throw Error(fmt::format("mixed precision in {}: only bf16 is known", name_of(dtype)));
  for (const State& s : forward.states())
    if (s.type.dtype == DType::f64)
      throw Error(fmt::format("mixed precision is for models in f32; state '{}' is f64", s.path));
  return Mixing(forward, dtype).take();
}

}  // namespace tandem::engine
