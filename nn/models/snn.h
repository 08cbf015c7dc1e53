#pragma once
#include <memory>
#include <vector>

#include <tandem/nn/layers.h>

namespace tandem::nn {

struct SnnOptions {
  std::int64_t in = 3072, width = 2048, classes = 10;
  int layers = 32;
  Shape image{};  ///< as LinearOptions::image
};

/// (N, …) -> (N, classes): the self-normalizing network of Klambauer et al. 2017: hidden layers with SELU and
/// LeCun-normal weights, without normalization. Modules: hidden.0, hidden.1, …, head.
class Snn final : public Module {
 public:
  explicit Snn(const SnnOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  class Hidden final : public Module {
   public:
    Hidden(ModuleBase& parent, const SnnOptions& options);
    Tensor forward(const Tensor& x) override;

   private:
    std::vector<std::unique_ptr<Linear>> layers_;
  };
  Hidden hidden_;
  Linear head_;
};

}  // namespace tandem::nn
