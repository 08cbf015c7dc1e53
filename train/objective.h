#pragma once
#include <cstdint>
#include <functional>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/datasets/dataset.h>
#include <tandem/nn/module.h>

namespace tandem {

/// What a model is trained for and measured by: functions of its output and of the batch, which is the data
/// (n, …) and the labels i32 (n); where samples have several labels, labels (n, k) and their weights f32 (n,
/// k).
struct Objective {
  using Function = std::function<Tensor(const Tensor& output, const Tensors& batch)>;
  Function loss;     ///< the mean over the samples: a scalar
  Function correct;  ///< how many samples are right: i32 []; never one of label -1, which fills up a batch
};

/// Cross entropy and the count of right classes, for outputs (n, classes). Several labels a sample are one
/// soft label, by their weights. Throws Error unless the smoothing is between 0 and 1.
Objective classification(double label_smoothing = 0);

/// The forward graph of a model on so many samples of a dataset: inputs "data", "labels" and, where samples
/// have several labels, "weights"; results "loss" when training, and otherwise "correct" and "non_finite",
/// which is 0 unless an output is NaN or infinite. What the model does not use is carried along. The model is
/// traced in training or in evaluation, and then left as it was.
engine::Graph trace_forward(nn::Module& model, const Dataset& data, const Objective& objective,
                            std::int64_t samples, bool training);

}  // namespace tandem
