#pragma once
#include <deque>
#include <vector>

#include <tandem/core/base/memory.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/runtime/host.h>

namespace tandem::bench {
using namespace engine;

/// The CPU kernel of an op by itself, with its own operands, which hold small numbers.
class KernelAlone {
 public:
  KernelAlone(const Op& op, const Types& inputs, const Types& outputs, int threads);

  void run() const { kernel_->run(launch_); }
  /// Returns the seconds of the fastest run within `seconds`, and at least of five: the cost without
  /// disturbance. For one thread, they are CPU time, which does not include other programs.
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
