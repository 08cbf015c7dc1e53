#include <tandem/ops/attention.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

std::string text_of(const AttentionForm& f) {
  return fmt::format("heads={} packed={} causal={} key_masked={} scale={} dropout={}", f.heads, int{f.packed},
                     int{f.causal}, int{f.key_masked}, f.scale, f.dropout);
}

TensorType log_sums_type(const TensorType& q, const AttentionSize& s) {
  return {q.dtype == DType::f64 ? DType::f64 : DType::f32, {s.samples, s.heads, s.queries}};
}

double products(const AttentionForm& form, const AttentionSize& s) {
  const std::int64_t most = std::min(s.queries, s.keys);  // queries before the first that sees all keys
  const std::int64_t seen =
      form.causal ? most * (most + 1) / 2 + (s.queries - most) * s.keys : s.queries * s.keys;
  return 2.0 * static_cast<double>(s.samples * s.heads * s.features) * static_cast<double>(seen);
}

Work work_of(double flops, TypesView inputs, TypesView outputs) {
  Work work = streaming_work(inputs, outputs, 0);
  work.flops = flops;
  return work;
}

// The models' samples follow each other, unless each model draws from a seed of its own.
template <class O> Tensors over_samples(const O& op, const VmapArgs& args) {
  if (op.random()) return map_over_models(op, args);
  Tensors joined;
  for (std::size_t i = 0; i < args.inputs.size(); ++i) {
    const Tensor all = with_model_axis(args.inputs[i], args.mapped[i], args.models);
    Shape shape = all.shape();
    shape[1] *= shape[0];
    shape.erase(shape.begin());
    joined.push_back(reshape(all, shape));
  }
  Tensors results = apply_op(op, std::move(joined));
  for (Tensor& t : results) {
    Shape shape = t.shape();
    shape[0] /= args.models;
    shape.insert(shape.begin(), args.models);
    t = reshape(t, shape);
  }
  return results;
}

Tensor attend(AttentionForm form, Tensors inputs, const AttentionOptions& o) {
  form.heads = o.heads;
  form.causal = o.causal;
  form.key_masked = o.key_mask.defined();
  form.scale = o.scale;
  form.dropout = o.dropout;
  const std::int64_t width = inputs[0].type().rank() > 0 ? inputs[0].size(-1) / (form.packed ? 3 : 1) : 0;
  if (o.scale == 0 && o.heads > 0 && width >= o.heads)
    form.scale = 1 / std::sqrt(static_cast<double>(width / o.heads));
  if (form.key_masked) inputs.push_back(o.key_mask);
  if (o.dropout > 0) {
    if (!o.seed) throw Error("attention: a dropout needs a seed");
    inputs.push_back(o.seed);
  }
  return apply_op1(std::make_shared<AttentionOp>(form), std::move(inputs));
}

}  // namespace

AttentionSize engine::attention_size(const AttentionForm& form, TypesView inputs) {
  if (inputs.size() < static_cast<std::size_t>(form.operands()))
    throw Error(
        fmt::format("takes {} inputs, not {}", static_cast<std::size_t>(form.operands()), inputs.size()));
  const TensorType& q = inputs[0];
  if (!is_floating(q.dtype) || q.rank() != 3 || q.elements() == 0)
    throw Error(fmt::format("{} must be (N,T,{}), floating and not empty, not {}",
                            form.packed ? "queries, keys and values" : "q", form.packed ? "3C" : "C",
                            to_string(q)));
  const std::int64_t width = q.shape[2] / (form.packed ? 3 : 1);
  if (form.packed && q.shape[2] % 3 != 0)
    throw Error(fmt::format("{} features do not split into queries, keys and values", q.shape[2]));
  if (form.heads < 1 || width % form.heads != 0)
    throw Error(fmt::format("{} features do not split into {} heads", width, form.heads));
  AttentionSize size{q.shape[0], q.shape[1], q.shape[1], form.heads, width / form.heads};
  if (!form.packed) {
    if (inputs[1].rank() == 3) size.keys = inputs[1].shape[1];
    const TensorType key{q.dtype, {size.samples, size.keys, width}};
    require_type("k", inputs[1], key);
    require_type("v", inputs[2], key);
  }
  if (size.keys == 0) throw Error("there are no keys");
  const auto input = [&](int i) { return inputs[static_cast<std::size_t>(i)]; };
  if (form.key_masked)
    require_type("the mask of the keys", input(form.mask()), {DType::b8, {size.samples, size.keys}});
  if (form.dropout > 0) require_type("the seed", input(form.seed()), {DType::i64, {}});
  return size;
}

AttentionOp::AttentionOp(AttentionForm form) : form(form) {
  if (!(form.dropout >= 0 && form.dropout < 1))
    throw Error(fmt::format("attention: the probability of dropping is {}, not in [0, 1)", form.dropout));
  if (!std::isfinite(form.scale)) throw Error(fmt::format("attention: the scale is {}", form.scale));
}
std::string AttentionOp::attributes() const { return text_of(form); }
Types AttentionOp::infer(TypesView inputs) const {
  require_inputs(inputs, static_cast<std::size_t>(form.operands()));
  const AttentionSize size = attention_size(form, inputs);
  return {{inputs[0].dtype, {size.samples, size.queries, size.width()}}, log_sums_type(inputs[0], size)};
}
Tensors AttentionOp::vjp(const VjpArgs& args) const {
  if (args.grads[1]) no_rule(*this, "derivative", "log_sums have no gradient");
  Tensors inputs = args.inputs;
  inputs.insert(inputs.end(), {args.outputs[0], args.outputs[1], args.grads[0]});
  Tensors gradients = apply_op(std::make_shared<AttentionGradOp>(form), std::move(inputs));
  gradients.resize(args.inputs.size());
  return gradients;
}
Tensors AttentionOp::vmap(const VmapArgs& args) const { return over_samples(*this, args); }
Work AttentionOp::cost(TypesView inputs, TypesView outputs) const {
  return work_of(2 * products(form, attention_size(form, inputs)), inputs, outputs);
}

std::string AttentionGradOp::attributes() const { return text_of(form); }
Types AttentionGradOp::infer(TypesView inputs) const {
  const std::size_t given = static_cast<std::size_t>(form.operands());
  require_inputs(inputs, given + 3);
  const AttentionSize size = attention_size(form, inputs);
  const TensorType y{inputs[0].dtype, {size.samples, size.queries, size.width()}};
  require_type("y", inputs[given], y);
  require_type("log_sums", inputs[given + 1], log_sums_type(inputs[0], size));
  require_type("the gradient of y", inputs[given + 2], y);
  return Types(inputs.begin(), inputs.begin() + form.projections());
}
Tensors AttentionGradOp::vjp(const VjpArgs&) const {
  no_rule(*this, "derivative", "for second derivatives, compute attention by matmul and softmax");
}
Tensors AttentionGradOp::vmap(const VmapArgs& args) const { return over_samples(*this, args); }
Work AttentionGradOp::cost(TypesView inputs, TypesView outputs) const {
  return work_of(5 * products(form, attention_size(form, inputs)), inputs, outputs);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  return attend({}, {q, k, v}, options);
}
Tensor attention(const Tensor& qkv, const AttentionOptions& options) {
  return attend({.packed = true}, {qkv}, options);
}

}  // namespace tandem
