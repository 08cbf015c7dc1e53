#pragma once
#include <memory>
#include <vector>

#include <tandem/nn/layers.h>

namespace tandem::nn {

struct MlpOptions {
  std::int64_t in = 3072, hidden = 256, classes = 10;
  int blocks = 4;
  Shape image{};  ///< as LinearOptions::image
};

/// (N, …) -> (N, classes): flatten, `blocks` hidden layers with relu, a linear head. No normalization.
class Mlp final : public Module {
 public:
  explicit Mlp(const MlpOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::unique_ptr<Linear>> hidden_;
  std::unique_ptr<Linear> head_;
};

/// x + second(relu(first(x))), then relu: (N, width) -> (N, width).
class ResidualBlock final : public Module {
 public:
  ResidualBlock(ModuleBase& parent, const std::string& name, std::int64_t width)
      : Module(parent, name),
        first_(*this, "first", {width, width}),
        second_(*this, "second", {width, width}) {}
  Tensor forward(const Tensor& x) override;

 private:
  Linear first_, second_;
};

/// (N, …) -> (N, classes): a linear stem, `blocks` residual blocks, a linear head. It has skips and no
/// normalization, so its losses must be the same under every parallelization.
class MlpResidual final : public Module {
 public:
  explicit MlpResidual(const MlpOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  Linear stem_;
  std::vector<std::unique_ptr<ResidualBlock>> blocks_;
  std::unique_ptr<Linear> head_;
};

}  // namespace tandem::nn
