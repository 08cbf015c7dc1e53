#include <tandem/ops/timer.h>

#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/sleep.h>
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {
namespace {

KernelPtr make_timer(const KernelSpec& spec) {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double, std::milli> ms(static_cast<const TimerOp&>(spec.op).ms);
  return make_kernel([duration = std::chrono::duration_cast<Clock::duration>(ms)](const Launch&) {
    sleep_until(Clock::now() + duration);
  });
}

}  // namespace

TimerOp::TimerOp(double ms, DType dtype) : ms(ms), dtype(dtype) {
  if (!std::isfinite(ms) || ms < 0) throw Error(fmt::format("a timer of {} ms: it must be 0 or more", ms));
}
std::string TimerOp::attributes() const { return fmt::format("ms={} dtype={}", ms, tandem::name_of(dtype)); }
Types TimerOp::infer(TypesView inputs) const {
  require_inputs(inputs, 1);
  return {TensorType{dtype, {0}}};
}

void add_timer_kernel(KernelTable& table) { table.add("timer", make_timer); }

}  // namespace tandem::engine
