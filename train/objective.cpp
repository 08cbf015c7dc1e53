#include <tandem/train/objective.h>

#include <fmt/format.h>

#include <tandem/core/graph/trace.h>
#include <tandem/ops/index.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

// Cross entropy against labels (n, k) with weights (n, k), whose rows have the sum 1.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& weights,
                          double smoothing) {
  const std::int64_t n = labels.shape()[0], k = labels.shape()[1];
  const Tensor logs = log_softmax(logits), of_labels = gather(logs, 1, labels);  // (n, classes), (n, k)
  const Tensor w = cast(weights, logits.dtype());
  const Tensor sharp = scale(sum(reshape(of_labels * w, {n * k})), -1.0 / static_cast<double>(n));
  return smoothing == 0 ? sharp : scale(sharp, 1 - smoothing) - scale(mean(logs), smoothing);
}

}  // namespace

Objective classification(double label_smoothing) {
  static_cast<void>(
      CrossEntropyOp({label_smoothing}));  // throws if it is out of range, before there is a batch
  return {
      .loss =
          [=](const Tensor& output, const Tensors& batch) {
            return batch.size() > 2 ? soft_cross_entropy(output, batch[1], batch[2], label_smoothing)
                                    : cross_entropy(output, batch[1], label_smoothing);
          },
      .correct = [](const Tensor& output, const Tensors& batch) { return correct_count(output, batch[1]); }};
}

Graph trace_forward(nn::Module& model, const Dataset& data, const Objective& objective, std::int64_t samples,
                    bool training, bool own_data) {
  if (!model.path().empty())
    throw Error(
        fmt::format("'{}' is a part of another module: train a part with a TrainStep, or give it no parent",
                    model.path()));
  const nn::ModeScope mode(model, training);
  Graph graph;
  Trace trace(graph);
  TensorType type = data.type();
  type.shape.insert(type.shape.begin(), samples);
  const int labels = data.labels_per_sample();
  const Shape of_labels = labels == 1 ? Shape{samples} : Shape{samples, labels};
  Tensors batch{trace.input(kDataInput, type, own_data),
                trace.input(kLabelsInput, {DType::i32, of_labels}, own_data)};
  if (labels > 1) batch.push_back(trace.input(kWeightsInput, {DType::f32, of_labels}, own_data));
  const Tensor output = model(batch[0]);
  const Scope scope("loss");
  if (training) {
    trace.result(kLossResult, objective.loss(output, batch));
  } else {
    const Tensor correct = objective.correct(output, batch);
    if (!correct || correct.type() != TensorType{DType::i32, {}})
      throw Error(fmt::format("objective.correct gives {}; it must be a count of samples, i32 []",
                              correct ? to_string(correct.type()) : "nothing"));
    trace.result(kCorrectResult, correct);
    trace.result(kNonFiniteResult, sum(scale(output, 0)));  // 0, or else NaN
  }
  for (const auto& [path, p] : model.named_parameters())
    if (graph.find_state(path) < 0) graph.add_state({path, p->tensor.type(), p->tensor.needs_grad()});
  return graph;
}

}  // namespace tandem
