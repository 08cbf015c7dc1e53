#pragma once
#include <cstdint>
#include <string>

#include <tandem/nn/initializers.h>
#include <tandem/nn/module.h>
#include <tandem/ops/window.h>

namespace tandem::nn {

struct LinearOptions {
  std::int64_t in = 0, out = 0;
  bool bias = true;
  /// Draws the weights; biases are then 0. If empty, weights and biases are drawn as PyTorch draws them.
  Initializer init{};
  Initializer bias_init{};  ///< draws the biases, whatever `init` is
  /// (height, width, channels) of the image, if the input is a flattened image. PyTorch flattens channels
  /// first, so the weight's columns have another order in its files.
  Shape image{};
};
/// (N, in) -> (N, out): x·weightᵀ + bias. Parameters `weight` (out, in) and `bias` (out); by default both are
/// drawn as PyTorch draws them, uniform in ±1/√in.
class Linear final : public Module {
 public:
  using Options = LinearOptions;
  Linear(ModuleBase& parent, const std::string& name, LinearOptions options);
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;  ///< without a bias, `bias` is undefined

 private:
  LinearOptions options_;
};

struct Conv2dOptions {
  std::int64_t in = 0, out = 0;
  Size2 kernel = 3, stride = 1, padding = 0, dilation = 1;  ///< of rows and columns: 3, or {1, 7}
  std::int64_t groups = 1;                                  ///< `groups` = `in`: depthwise
  bool bias = true;
  Initializer init{};  ///< as LinearOptions::init
};
/// (N, H, W, in) -> (N, H′, W′, out). Parameters `weight` (out, rows, columns, in/groups) and `bias` (out).
class Conv2d final : public Module {
 public:
  using Options = Conv2dOptions;
  Conv2d(ModuleBase& parent, const std::string& name, const Conv2dOptions& options);
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;  ///< without a bias, `bias` is undefined

 private:
  Conv2dOptions options_;
};

struct ConvTranspose2dOptions {
  std::int64_t in = 0, out = 0;
  Size2 kernel = 3, stride = 1, padding = 0;
  Size2 output_padding = 0;  ///< less than the stride
  Size2 dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  Initializer init{};  ///< as LinearOptions::init
};
/// (N, H, W, in) -> (N, (H−1)·stride − 2·padding + dilation·(kernel−1) + output_padding + 1, …, out).
/// Parameters `weight` (in, rows, columns, out/groups) and `bias` (out).
class ConvTranspose2d final : public Module {
 public:
  using Options = ConvTranspose2dOptions;
  ConvTranspose2d(ModuleBase& parent, const std::string& name, const ConvTranspose2dOptions& options);
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;  ///< without a bias, `bias` is undefined

 private:
  ConvTranspose2dOptions options_;
};

struct SeparableConv2dOptions {
  std::int64_t in = 0, out = 0;
  Size2 kernel = 3, stride = 1, padding = 0, dilation = 1;
  bool bias = true;
};
/// Convolves each channel by itself (`depthwise`), then combines the channels by a 1×1 convolution
/// (`pointwise`, which has the bias): (N, H, W, in) -> (N, H′, W′, out) (Chollet 2017).
class SeparableConv2d final : public Module {
 public:
  using Options = SeparableConv2dOptions;
  SeparableConv2d(ModuleBase& parent, const std::string& name, SeparableConv2dOptions options);
  Tensor forward(const Tensor& x) override { return pointwise_(depthwise_(x)); }

 private:
  Conv2d depthwise_, pointwise_;
};

struct EmbeddingOptions {
  std::int64_t count = 0;  ///< rows: ids are 0 … count−1
  std::int64_t features = 0;
  Initializer init{};         ///< empty: the standard normal distribution
  std::int64_t padding = -1;  ///< an id whose row no lookup trains, as PyTorch's padding_idx; -1: none
};
/// ids i32 (…) -> (…, features): rows of the parameter `weight` (count, features).
class Embedding final : public Module {
 public:
  using Options = EmbeddingOptions;
  Embedding(ModuleBase& parent, const std::string& name, EmbeddingOptions options);
  Tensor forward(const Tensor& ids) override;

  Tensor weight;

 private:
  const std::int64_t padding_;
};

struct BatchNormOptions {
  std::int64_t channels = 0;
  double eps = 1e-5;
  double momentum = 0.1;  ///< weight of the new statistics
};
/// Normalizes over all axes but the last. Training uses the batch's statistics and updates `running_mean` and
/// `running_var` (unbiased) in separate nodes. Evaluation uses the running statistics. If training has one
/// value per channel, the output is the bias (PyTorch throws an error instead). Throws Error if eps is
/// negative or the momentum is not from 0 to 1.
class BatchNorm final : public Module {
 public:
  using Options = BatchNormOptions;
  BatchNorm(ModuleBase& parent, const std::string& name, BatchNormOptions options);
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias, running_mean, running_var;

 private:
  BatchNormOptions options_;
};

struct LayerNormOptions {
  std::int64_t features = 0;
  double eps = 1e-5;
};
/// Normalizes each row of (…, features). Parameters `weight` and `bias` (features) start as 1 and 0.
class LayerNorm final : public Module {
 public:
  using Options = LayerNormOptions;
  LayerNorm(ModuleBase& parent, const std::string& name, LayerNormOptions options);
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;

 private:
  LayerNormOptions options_;
};

struct RmsNormOptions {
  std::int64_t features = 0;
  double eps = 1e-5;
};
/// Divides each row of (…, features) by its root mean square. The parameter `weight` (features) starts as 1.
class RmsNorm final : public Module {
 public:
  using Options = RmsNormOptions;
  RmsNorm(ModuleBase& parent, const std::string& name, RmsNormOptions options);
  Tensor forward(const Tensor& x) override;

  Tensor weight;

 private:
  RmsNormOptions options_;
};

struct GroupNormOptions {
  std::int64_t groups = 1, channels = 0;
  double eps = 1e-5;
};
/// Normalizes each group of channels of each sample in (N, …, channels). Parameters `weight` and `bias`
/// (channels).
class GroupNorm final : public Module {
 public:
  using Options = GroupNormOptions;
  GroupNorm(ModuleBase& parent, const std::string& name, GroupNormOptions options);
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;

 private:
  GroupNormOptions options_;
};

/// Zeroes elements with probability p while training.
class Dropout final : public Module {
 public:
  using Options = double;
  Dropout(ModuleBase& parent, const std::string& name, double p) : Module(parent, name), p_(p) {}
  Tensor forward(const Tensor& x) override;
  /// Sets p, which may then be 0 beside models with another: the op remains in the trace.
  void set_probability(double p);

 private:
  double p_;
  bool stays_ = false;
};

}  // namespace tandem::nn
