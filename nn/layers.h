#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tandem/nn/module.h>

namespace tandem::nn {

struct LinearOptions {
  std::int64_t in = 0, out = 0;
  bool bias = true;
};
/// (N, in) -> (N, out): x·weightᵀ + bias. Parameters `weight` (out, in) and `bias` (out), drawn as PyTorch
/// does: uniform in ±1/√in.
class Linear final : public Module {
 public:
  Linear(Module& parent, const std::string& name, LinearOptions options);
  Tensor forward(const Tensor& x) override;

 private:
  LinearOptions options_;
};

struct Conv2dOptions {
  std::int64_t in = 0, out = 0;
  std::int64_t kernel = 3, stride = 1, padding = 0;
  bool bias = true;
};
/// (N, H, W, in) -> (N, H′, W′, out). Parameters `weight` (out, kernel, kernel, in) and `bias` (out).
class Conv2d final : public Module {
 public:
  Conv2d(Module& parent, const std::string& name, Conv2dOptions options);
  Tensor forward(const Tensor& x) override;

 private:
  Conv2dOptions options_;
};

struct BatchNormOptions {
  std::int64_t channels = 0;
  double eps = 1e-5;
  double momentum = 0.1;  ///< weight of the new statistics
};
/// Normalises over all axes but the last. Training: by the batch's statistics, updating `running_mean` and
/// `running_var` (unbiased) in nodes of their own. Evaluation: by the running ones.
class BatchNorm final : public Module {
 public:
  BatchNorm(Module& parent, const std::string& name, BatchNormOptions options);
  Tensor forward(const Tensor& x) override;

 private:
  BatchNormOptions options_;
};

/// Zeroes elements with probability p while training.
class Dropout final : public Module {
 public:
  Dropout(Module& parent, const std::string& name, double p) : Module(parent, name), p_(p) {}
  Tensor forward(const Tensor& x) override;

 private:
  double p_;
};

}  // namespace tandem::nn
