#pragma once
#include <tandem/nn/module.h>
#include <tandem/ops/pool.h>

namespace tandem::nn {

/// Pooling as modules, for networks that list their layers. (N, H, W, C) -> (N, H′, W′, C); no parameters.

struct PoolOptions {
  Size2 kernel = 2;  ///< of rows and columns: 2, or {1, 2}
  Size2 stride = 0;  ///< 0 means the kernel's size
  Size2 padding = 0;
  tandem::Pool2dOptions window() const { return {kernel, stride, padding}; }
};
class MaxPool2d final : public Module {
 public:
  MaxPool2d(Module& parent, const std::string& name, PoolOptions o)
      : Module(parent, name), window_(o.window()) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, window_); }

 private:
  tandem::Pool2dOptions window_;
};
/// The mean of each window; padding counts as zeros.
class AvgPool2d final : public Module {
 public:
  AvgPool2d(Module& parent, const std::string& name, PoolOptions o)
      : Module(parent, name), window_(o.window()) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, window_); }

 private:
  tandem::Pool2dOptions window_;
};

struct AdaptivePoolOptions {
  std::int64_t height = 1, width = 1;  ///< size of the output
};
class AdaptiveMaxPool2d final : public Module {
 public:
  AdaptiveMaxPool2d(Module& parent, const std::string& name, AdaptivePoolOptions o)
      : Module(parent, name), output_(o.height, o.width) {}
  Tensor forward(const Tensor& x) override { return adaptive_max_pool2d(x, output_); }

 private:
  Size2 output_;
};
class AdaptiveAvgPool2d final : public Module {
 public:
  AdaptiveAvgPool2d(Module& parent, const std::string& name, AdaptivePoolOptions o)
      : Module(parent, name), output_(o.height, o.width) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, output_); }

 private:
  Size2 output_;
};

}  // namespace tandem::nn
