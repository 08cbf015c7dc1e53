#pragma once
#include <functional>
#include <utility>

#include <tandem/core/graph/kernel.h>
#include <tandem/ops/kernels.h>

namespace tandem::testing {
using namespace engine;

/// The CPU's kernels, whose matrix products first call a function with the tag of their instruction. The
/// results are the same. Only one such object can exist at a time.
class CallingKernels {
 public:
  using Before = std::function<void(const Launch&, const Tag&)>;
  explicit CallingKernels(Before before) {
    before_ = std::move(before);
    table_.add("matmul", make);
  }
  const KernelTable& table() const { return table_; }

 private:
  struct Product final : Kernel {
    Product(KernelPtr kernel, Tag tag) : kernel(std::move(kernel)), tag(std::move(tag)) {}
    std::int64_t workspace() const override { return kernel->workspace(); }
    void run(const Launch& launch) const override {
      before_(launch, tag);
      kernel->run(launch);
    }
    const KernelPtr kernel;
    const Tag tag;
  };
  static KernelPtr make(const KernelSpec& spec) {
    KernelSpec inner = spec;
    inner.table = &cpu_kernels();
    return std::make_unique<Product>(cpu_kernels().make(inner), spec.tag);
  }

  inline static Before before_;
  KernelTable table_{"calling", &cpu_kernels()};
};

}  // namespace tandem::testing
