#include <tandem/ops/loss.h>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/ops/label_check.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

namespace tandem {
namespace {

constexpr double kFlopsPerLogit = 10;  // maximum, exponential, sum, quotient

void check_precision(const TensorType& t) {
  if (t.dtype != DType::f32 && t.dtype != DType::f64)
    throw Error(fmt::format("{}: the loss is computed in f32 or f64, cast first", to_string(t)));
}

void check_logits_and_labels(std::span<const TensorType> inputs, std::size_t count) {
  if (inputs.size() != count) throw Error(fmt::format("takes {} inputs, not {}", count, inputs.size()));
  const TensorType &logits = inputs[0], &labels = inputs[1];
  check_precision(logits);
  if (logits.rank() != 2 || logits.elements() == 0)
    throw Error(fmt::format("logits are [samples, classes], not {}", to_string(logits)));
  if (labels != TensorType{DType::i32, {logits.shape[0]}})
    throw Error(fmt::format("labels for {} are i32[{}], not {}", to_string(logits), logits.shape[0],
                            to_string(labels)));
}

Tensor cross_entropy_grad(const Tensor& logits, const Tensor& labels, const Tensor& g) {
  return apply_op1(std::make_shared<CrossEntropyGrad>(), {logits, labels, g});
}

// (softmax's output y, g) -> y·(g − Σ g·y)
Tensor softmax_vjp(const Tensor& y, const Tensor& g) { return y * (g - sum(g * y, {-1}, true)); }

}  // namespace

std::string Softmax::attributes() const { return fmt::format("logarithm={}", int{logarithm}); }
Types Softmax::infer(std::span<const TensorType> inputs) const {
  if (inputs.size() != 1) throw Error(fmt::format("takes one input, not {}", inputs.size()));
  check_precision(inputs[0]);
  if (inputs[0].rank() == 0 || inputs[0].shape.back() == 0)
    throw Error(fmt::format("{} has no last axis to normalise", to_string(inputs[0])));
  return {inputs[0]};
}
Tensors Softmax::vjp(const VjpArgs& args) const {
  const Tensor &y = args.outputs[0], &g = args.grads[0];
  if (!logarithm) return {softmax_vjp(y, g)};
  return {g - exp(y) * sum(g, {-1}, true)};
}
Tensors Softmax::batch(const BatchArgs& args) const {
  return apply_op(std::make_shared<Softmax>(logarithm), args.inputs);
}
Work Softmax::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  return streaming_work(inputs, outputs, kFlopsPerLogit);
}

Types CrossEntropy::infer(std::span<const TensorType> inputs) const {
  check_logits_and_labels(inputs, 2);
  return {{inputs[0].dtype, {}}};
}
Tensors CrossEntropy::vjp(const VjpArgs& args) const {
  return {cross_entropy_grad(args.inputs[0], args.inputs[1], args.grads[0]), Tensor()};
}
Tensors CrossEntropy::batch(const BatchArgs& args) const {
  return map_over_models(std::make_shared<CrossEntropy>(), args);
}
Work CrossEntropy::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  Work work = streaming_work(inputs, outputs, 0);
  work.flops = kFlopsPerLogit * static_cast<double>(inputs[0].elements());
  return work;
}

Types CrossEntropyGrad::infer(std::span<const TensorType> inputs) const {
  check_logits_and_labels(inputs, 3);
  if (inputs[2] != TensorType{inputs[0].dtype, {}})
    throw Error(fmt::format("the loss's gradient is {}, not {}", to_string(TensorType{inputs[0].dtype, {}}),
                            to_string(inputs[2])));
  return {inputs[0]};
}
// With p = softmax(logits): d/dlogits of Σ h·(p − onehot)·g/N is p·(h − Σ h·p)·g/N.
Tensors CrossEntropyGrad::vjp(const VjpArgs& args) const {
  const Tensor &logits = args.inputs[0], &labels = args.inputs[1], &g = args.inputs[2], &h = args.grads[0];
  Tensors grads(3);
  if (args.needed[0]) grads[0] = softmax_vjp(softmax(logits), h) * (g / static_cast<double>(logits.size(0)));
  if (args.needed[2]) grads[2] = sum(h * cross_entropy_grad(logits, labels, Tensor::full(g.type(), 1)));
  return grads;
}
Tensors CrossEntropyGrad::batch(const BatchArgs& args) const {
  return map_over_models(std::make_shared<CrossEntropyGrad>(), args);
}
Work CrossEntropyGrad::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  return streaming_work(inputs, outputs, kFlopsPerLogit);
}

Tensor softmax(const Tensor& x) { return apply_op1(std::make_shared<Softmax>(false), {x}); }
Tensor log_softmax(const Tensor& x) { return apply_op1(std::make_shared<Softmax>(true), {x}); }
Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  return apply_op1(std::make_shared<CrossEntropy>(), {logits, labels});
}
Tensor correct_count(const Tensor& logits, const Tensor& labels) {
  return sum(equal(argmax(logits), labels));
}

void check_labels(const std::int32_t* labels, std::int64_t samples, std::int64_t classes) {
  for (std::int64_t i = 0; i < samples; ++i)
    if (labels[i] < 0 || labels[i] >= classes)
      throw Error(fmt::format("the label of sample {} is {}, outside the {} classes", i, labels[i], classes));
}

}  // namespace tandem
