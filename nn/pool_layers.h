#pragma once
#include <tandem/nn/module.h>
#include <tandem/ops/pool.h>

namespace tandem::nn {

struct PoolOptions {
  Size2 kernel = 2;  ///< of rows and columns: 2, or {1, 2}
  Size2 stride = 0;  ///< 0 means the kernel's size
  Size2 padding = 0;
  tandem::Pool2dOptions arguments() const { return {kernel, stride, padding}; }
};
struct AdaptivePoolOptions {
  std::int64_t height = 1, width = 1;  ///< size of the output
  Size2 arguments() const { return {height, width}; }
};

/// The pooling functions as modules, for networks that list their layers. (N, H, W, C) -> (N, H′, W′, C); no
/// parameters.
template <class O, auto pool> class PoolLayer final : public Module {
 public:
  using Options = O;
  PoolLayer(ModuleBase& parent, const std::string& name, Options o) : Module(parent, name), options_(o) {}
  Tensor forward(const Tensor& x) override { return pool(x, options_.arguments()); }

 private:
  Options options_;
};
using MaxPool2d = PoolLayer<PoolOptions, max_pool2d>;
/// The mean of each window; padding counts as zeros.
using AvgPool2d = PoolLayer<PoolOptions, avg_pool2d>;
using AdaptiveMaxPool2d = PoolLayer<AdaptivePoolOptions, adaptive_max_pool2d>;
using AdaptiveAvgPool2d = PoolLayer<AdaptivePoolOptions, adaptive_avg_pool2d>;

}  // namespace tandem::nn
