#pragma once
#include <deque>
#include <vector>

#include <tandem/core/base/memory.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/runtime/host.h>

namespace tandem::bench {
using namespace engine;

/// The CPU kernel of an op by itself, on operands of its own that hold small numbers.
class KernelAlone {
 public:
  KernelAlone(const Op& op, const Types& inputs, const Types& outputs, int threads);

  void run() const { kernel_->run(launch_); }
  /// Of the fastest run within `seconds`, and five at least: what it costs when nothing disturbs. One
  /// thread's own time, where there is one, does not count what other programs take.
  double fastest(double seconds) const;

 private:
  int threads_;
  std::deque<Buffer> buffers_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  KernelPtr kernel_;
  RankContext alone_;
  Launch launch_;
};

}  // namespace tandem::bench
