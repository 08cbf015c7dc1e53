#include "kernel_alone.h"

#include <algorithm>

#include <tandem/core/base/team.h>
#include <tandem/ops/kernels.h>

#include "measure.h"

namespace tandem::bench {
using namespace engine;
namespace {

void fill(const TensorType& type, std::byte* data) {
  if (type.dtype != DType::f32) {
    std::fill_n(data, type.bytes(), std::byte{0});  // masks, seeds
    auto* indices = reinterpret_cast<std::int32_t*>(data);
    for (std::int64_t i = 0; type.dtype == DType::i32 && i < type.elements(); ++i)
      indices[i] = static_cast<std::int32_t>(i * 5 % 2);  // labels too: of any table, and not all the same
    return;
  }
  auto* f = reinterpret_cast<float*>(data);
  for (std::int64_t i = 0; i < type.elements(); ++i) f[i] = static_cast<float>(i * 7919 % 1000) / 1000 - 0.3f;
}

}  // namespace

KernelAlone::KernelAlone(const Op& op, const Types& inputs, const Types& outputs, int threads)
    : threads_(threads) {
  for (const auto& t : inputs) {
    fill(t, buffers_.emplace_back(t.bytes()).data());
    in_.push_back(buffers_.back().data());
  }
  for (const auto& t : outputs) out_.push_back(buffers_.emplace_back(t.bytes()).data());
  const TeamSize team(threads);
  kernel_ = cpu_kernels().make({op, inputs, outputs, {}, threads});
  launch_ = {in_.data(), out_.data(), buffers_.emplace_back(kernel_->workspace()).data(), 0, &alone_};
}

double KernelAlone::fastest(double seconds) const {
  const TeamSize team(threads_);
  const clockid_t clock = threads_ == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  double best = 1e9;
  const double start = seconds_of(clock);
  for (int i = 0; i < 5 || seconds_of(clock) - start < seconds; ++i) {
    const double begin = seconds_of(clock);
    run();
    best = std::min(best, seconds_of(clock) - begin);
  }
  return best;
}

}  // namespace tandem::bench
