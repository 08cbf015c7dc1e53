#include <tandem/core/graph/kernel.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/scope.h>
#include <tandem/core/graph/through_f32.h>

namespace tandem::engine {
namespace {
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(std::function<void(const Launch&)> run, std::int64_t workspace)
      : run_(std::move(run)), workspace_(workspace) {}
  std::int64_t workspace() const override { return workspace_; }
  void run(const Launch& launch) const override { run_(launch); }

 private:
  std::function<void(const Launch&)> run_;
  std::int64_t workspace_;
};
}  // namespace

void Kernel::run_piece(const Launch& launch, int) const { run(launch); }

KernelPtr make_kernel(std::function<void(const Launch&)> run, std::int64_t workspace) {
  return std::make_unique<FunctionKernel>(std::move(run), workspace);
}

void KernelTable::add(std::string_view op, KernelFactory factory) { factories_[std::string(op)] = factory; }

bool KernelTable::has(std::string_view op) const {
  return factories_.contains(std::string(op)) || (fallback_ && fallback_->has(op));
}

KernelPtr KernelTable::make(const KernelSpec& asked) const {
  KernelSpec spec = asked;
  spec.table = this;
  const std::string op(spec.op.name());
  for (const KernelTable* table = this; table; table = table->fallback_) {
    const auto found = table->factories_.find(op);
    if (found == table->factories_.end()) continue;
    if (KernelPtr kernel = found->second(spec)) return kernel;
    if (KernelPtr kernel = make_through_f32(spec)) return kernel;
  }
  throw Error(
      fmt::format("{}no {} kernel for {}; give a table that has one as Strategy::kernels, or as EagerKernels",
                  Scope::prefix(spec.tag.path), backend_, signature(spec.op, spec.inputs)));
}

}  // namespace tandem::engine
