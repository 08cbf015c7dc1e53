#pragma once
#include <cstdint>
#include <functional>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/datasets/dataset.h>
#include <tandem/nn/module.h>

namespace tandem {

/// The loss and the accuracy of a model, as functions of its output and of the batch: data (n, …) and labels
/// i32 (n). If samples have several labels, the batch has labels (n, k) and their weights f32 (n, k).
struct Objective {
  using Function = std::function<Tensor(const Tensor& output, const Tensors& batch)>;
  Function loss;     ///< the mean over the samples: a scalar
  Function correct;  ///< number of correct samples: i32 []; label -1, which pads a batch, never counts
};

/// Returns cross entropy and the count of correct classes, for outputs (n, classes). Several labels per
/// sample form one soft label by their weights. Throws Error unless the smoothing is between 0 and 1.
Objective classification(double label_smoothing = 0);

/// Traces the forward graph of a model on `samples` samples of a dataset. Inputs: "data", "labels" and, if
/// samples have several labels, "weights". Results: "loss" in training; otherwise "correct" and "non_finite",
/// which is 0 unless an output is NaN or infinite. Parameters that the model does not use are carried along.
/// The model is traced in training or evaluation mode, and then left as it was. `own_data`: each of several
/// models has a batch of its own.
engine::Graph trace_forward(nn::Module& model, const Dataset& data, const Objective& objective,
                            std::int64_t samples, bool training, bool own_data = false);

}  // namespace tandem
