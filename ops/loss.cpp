#include <tandem/ops/loss.h>

#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/index.h>
#include <tandem/ops/label_check.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

using Code = PointwiseCode;

void check_precision(const TensorType& t) {
  if (t.dtype != DType::f32 && t.dtype != DType::f64)
    throw Error(fmt::format("{}: the loss is computed in f32 or f64, cast first", to_string(t)));
}

void check_logits_and_labels(TypesView inputs, std::size_t count) {
  require_inputs(inputs, count);
  const TensorType &logits = inputs[0], &labels = inputs[1];
  check_precision(logits);
  if (logits.rank() != 2 || logits.elements() == 0)
    throw Error(fmt::format("cross_entropy: logits must be [samples, classes] and not empty, not {}",
                            to_string(logits)));
  if (labels != TensorType{DType::i32, {logits.shape[0]}})
    throw Error(fmt::format("labels for {} must be i32[{}], not {}", to_string(logits), logits.shape[0],
                            to_string(labels)));
}

Tensor cross_entropy_grad(const Tensor& logits, const Tensor& labels, const Tensor& g,
                          const Targets& targets) {
  return apply_op1(std::make_shared<CrossEntropyGradOp>(targets), {logits, labels, g});
}

Tensor scalar(DType dtype, double value) { return Tensor::full({dtype, {}}, value); }

// Which samples do not count.
Tensor is_ignored(const Tensor& labels, std::int32_t ignored) {
  return equal(labels, scalar(DType::i32, ignored));
}
// by, but 1 for 0.
Tensor divisor(const Tensor& by) {
  return where(equal(by, scalar(by.dtype(), 0)), scalar(by.dtype(), 1), by);
}
// rows, but 0 for samples that do not count, whose logits can be infinite.
Tensor without_ignored(const Tensor& rows, const Tensor& ignored) {
  return where(reshape(ignored, {-1, 1}), scalar(rows.dtype(), 0), rows);
}

std::string text_of(const Targets& targets) {
  return fmt::format("smoothing={}", targets.smoothing) +
         (targets.ignored ? fmt::format(" ignored={}", *targets.ignored) : "");
}

// Gradient of softmax, from its output y: y·(g − Σ g·y).
Tensor softmax_vjp(const Tensor& y, const Tensor& g) { return y * (g - sum(g * y, {-1}, true)); }

// The mean of an expression of the elements of a and b.
Tensor mean_of(const char* name, PointwiseExpression expression, const Tensor& a, const Tensor& b) {
  if (a.type() != b.type() || !is_floating(a.dtype()))
    throw Error(fmt::format("{}: {} and {} must have the same shape and floating dtype; reshape or cast",
                            name, to_string(a.type()), to_string(b.type())));
  return mean(apply_op1(std::make_shared<PointwiseOp>(std::move(expression), a.dtype()), {a, b}));
}

Tensor rows_of(const Tensor& logits) {
  check_precision(logits.type());
  if (logits.type().rank() < 2 || logits.elements() == 0)
    throw Error(fmt::format("cross_entropy: logits must be [samples, classes] and not empty, not {}",
                            to_string(logits.type())));
  return reshape(logits, {-1, logits.size(-1)});
}

Tensor row_labels(const char* op, const Tensor& logits, const Tensor& labels) {
  const Shape samples(logits.shape().begin(), logits.shape().end() - 1);
  if (is_floating(labels.dtype()) || labels.dtype() == DType::b8)
    throw Error(
        fmt::format("{}: the labels are {}; they must be i32, i64 or u8", op, to_string(labels.type())));
  if (labels.shape() != samples)
    throw Error(fmt::format("{}: labels for {} must be {}, not {}", op, to_string(logits.type()),
                            to_string(TensorType{labels.dtype(), samples}), to_string(labels.type())));
  return reshape(index32(labels), {-1});
}

}  // namespace

std::string SoftmaxOp::attributes() const { return fmt::format("logarithm={}", int{logarithm}); }
Types SoftmaxOp::infer(TypesView inputs) const {
  require_inputs(inputs, 1);
  if (!is_floating(inputs[0].dtype))
    throw Error(fmt::format("{} has no floating dtype; cast it", to_string(inputs[0])));
  if (inputs[0].rank() == 0 || inputs[0].shape.back() == 0)
    throw Error(fmt::format("{} has no last axis to normalize", to_string(inputs[0])));
  return {inputs[0]};
}
Tensors SoftmaxOp::vjp(const VjpArgs& args) const {
  const Tensor &y = args.outputs[0], &g = args.grads[0];
  if (!logarithm) return {softmax_vjp(y, g)};
  return {g - exp(y) * sum(g, {-1}, true)};
}

CrossEntropyOp::CrossEntropyOp(const Targets& targets) : targets(targets) {
  if (!(targets.smoothing >= 0 && targets.smoothing <= 1))
    throw Error(fmt::format("label smoothing {} is not between 0 and 1", targets.smoothing));
}
std::string CrossEntropyOp::attributes() const { return text_of(targets); }
Types CrossEntropyOp::infer(TypesView inputs) const {
  check_logits_and_labels(inputs, 2);
  return {{inputs[0].dtype, {}}};
}
Tensors CrossEntropyOp::vjp(const VjpArgs& args) const {
  return {cross_entropy_grad(args.inputs[0], args.inputs[1], args.grads[0], targets), Tensor()};
}

std::string CrossEntropyGradOp::attributes() const { return text_of(targets); }
Types CrossEntropyGradOp::infer(TypesView inputs) const {
  check_logits_and_labels(inputs, 3);
  if (inputs[2] != TensorType{inputs[0].dtype, {}})
    throw Error(fmt::format("the loss's gradient must be {}, not {}",
                            to_string(TensorType{inputs[0].dtype, {}}), to_string(inputs[2])));
  return {inputs[0]};
}
// With p = softmax(logits), the derivative of Σ h·(p − t)·g/N by the logits is p·(h − Σ h·p)·g/N.
Tensors CrossEntropyGradOp::vjp(const VjpArgs& args) const {
  const Tensor &logits = args.inputs[0], &labels = args.inputs[1], &g = args.inputs[2], &h = args.grads[0];
  Tensors grads(3);
  if (args.needed[0] && targets.ignored) {
    const Tensor ignored = is_ignored(labels, *targets.ignored),
                 counts = where(ignored, scalar(g.dtype(), 0), scalar(g.dtype(), 1));
    grads[0] = softmax_vjp(softmax(without_ignored(logits, ignored)), h) *
               (reshape(counts, {-1, 1}) * (g / divisor(sum(counts))));
  } else if (args.needed[0]) {
    grads[0] = softmax_vjp(softmax(logits), h) * (g / static_cast<double>(logits.size(0)));
  }
  if (args.needed[2]) grads[2] = sum(h * cross_entropy_grad(logits, labels, scalar(g.dtype(), 1), targets));
  return grads;
}

Tensor softmax(const Tensor& x) { return apply_op1(std::make_shared<SoftmaxOp>(false), {x}); }
Tensor log_softmax(const Tensor& x) { return apply_op1(std::make_shared<SoftmaxOp>(true), {x}); }

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, double label_smoothing) {
  return cross_entropy(logits, labels, CrossEntropyOptions{.label_smoothing = label_smoothing});
}

// With the weights v of the samples and w of the classes, and smoothing s, this is
// Σ (v·(1 − s)·(−log p at the label) + s/C·Σ w·(−log p)) / Σ v.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  Targets targets{.smoothing = options.label_smoothing};
  if (const auto& index = options.ignore_index; index && std::in_range<std::int32_t>(*index))
    targets.ignored = static_cast<std::int32_t>(*index);
  auto op = std::make_shared<CrossEntropyOp>(targets);
  Tensor rows = rows_of(logits);
  const Tensor all = row_labels("cross_entropy", logits, labels), &weights = options.class_weights;
  if (!weights) return apply_op1(std::move(op), {rows, all});
  const std::int64_t classes = rows.size(1);
  const TensorType weight{rows.dtype(), {classes}};
  if (weights.type() != weight)
    throw Error(fmt::format("cross_entropy: class weights for {} must be {}, not {}",
                            to_string(logits.type()), to_string(weight), to_string(weights.type())));
  Tensor counts = Tensor::full({rows.dtype(), {1}}, 1), ids = all;
  if (targets.ignored) {
    const Tensor ignored = is_ignored(all, *targets.ignored);
    counts = where(ignored, scalar(rows.dtype(), 0), scalar(rows.dtype(), 1));
    ids = where(ignored, scalar(DType::i32, 0), all);
    rows = without_ignored(rows, ignored);
  }
  const Tensor log_p = log_softmax(rows), per_sample = embedding(weights, ids) * counts;
  const Tensor at_label = reshape(gather(log_p, 1, reshape(ids, {-1, 1})), {-1});
  const double s = targets.smoothing;
  Tensor total = sum(per_sample * -at_label) * (1 - s);
  if (s > 0) total = total - sum(sum(log_p * weights, {1}) * counts) * (s / static_cast<double>(classes));
  return total / divisor(sum(per_sample));
}

// Computed as t·softplus(−x) + (1 − t)·softplus(x), in which no terms cancel.
Tensor bce_with_logits(const Tensor& logits, const Tensor& targets) {
  return mean_of("bce_with_logits",
                 {{Code::input, 0},
                  {Code::input, 1},
                  {Code::neg, 0},
                  {Code::softplus, 2},
                  {Code::mul, 1, 3},
                  {Code::constant, -1, -1, -1, 1},
                  {Code::sub, 5, 1},
                  {Code::softplus, 0},
                  {Code::mul, 6, 7},
                  {Code::add, 4, 8}},
                 logits, targets);
}
Tensor mse_loss(const Tensor& a, const Tensor& b) {
  return mean_of("mse_loss", {{Code::input, 0}, {Code::input, 1}, {Code::sub, 0, 1}, {Code::mul, 2, 2}}, a,
                 b);
}
Tensor l1_loss(const Tensor& a, const Tensor& b) {
  return mean_of("l1_loss", {{Code::input, 0}, {Code::input, 1}, {Code::sub, 0, 1}, {Code::abs, 2}}, a, b);
}
Tensor smooth_l1_loss(const Tensor& a, const Tensor& b, double beta) {
  if (!(beta > 0))
    throw Error(fmt::format("smooth_l1_loss: beta {} is not above 0; for 0, the limit, use l1_loss", beta));
  return mean_of("smooth_l1_loss",
                 {{Code::input, 0},
                  {Code::input, 1},
                  {Code::sub, 0, 1},
                  {Code::abs, 2},
                  {Code::constant, -1, -1, -1, beta},
                  {Code::lt, 3, 4},
                  {Code::mul, 3, 3},
                  {Code::constant, -1, -1, -1, 0.5 / beta},
                  {Code::mul, 6, 7},
                  {Code::constant, -1, -1, -1, 0.5 * beta},
                  {Code::sub, 3, 9},
                  {Code::where, 5, 8, 10}},
                 a, b);
}

Tensor correct_count(const Tensor& logits, const Tensor& labels) {
  return sum(equal(reshape(argmax(logits), {-1}), row_labels("correct_count", logits, labels)));
}

std::int64_t engine::count_labels(const std::int32_t* labels, std::int64_t samples, std::int64_t classes,
                                  std::optional<std::int32_t> ignored) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    if (labels[i] == ignored) continue;
    if (labels[i] < 0 || labels[i] >= classes)
      throw Error(fmt::format(
          "label {} of {} is {}, outside the {} classes; labels are counted from 0, over all samples and, of texts, "
          "positions",
          i, samples, labels[i], classes));
    ++count;
  }
  return count;
}

}  // namespace tandem
