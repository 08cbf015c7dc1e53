#include <tandem/dist/throttle.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/abort.h>
#include <tandem/dist/group.h>
#include <tandem/dist/wait.h>

namespace tandem::engine {
namespace {

using Clock = std::chrono::steady_clock;

class ThrottledComm final : public Comm, public AbortAware {
 public:
  ThrottledComm(std::unique_ptr<Comm> inner, const LinkModel& link)
      : inner_(std::move(inner)),
        abort_(dynamic_cast<AbortAware*>(inner_.get())),
        link_(link),
        out_free_(static_cast<std::size_t>(inner_->size())),
        in_free_(static_cast<std::size_t>(inner_->size())) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  double all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                        std::uint64_t channel, int threads) override {
    inner_->barrier(group, channel);
    const double met = steady_seconds();
    const auto end = occupy_ring(group, all_reduce_seconds(link_, static_cast<double>(count * size_of(dtype)),
                                                           static_cast<int>(group.size())));
    inner_->all_reduce_sum(data, count, dtype, group, channel, threads);
    wait_until(end);
    return met;
  }
  void barrier(std::span<const int> group, std::uint64_t channel) override {
    inner_->barrier(group, channel);
    wait_until(occupy_ring(group, barrier_seconds(link_, static_cast<int>(group.size()))));
  }
  void send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    inner_->send(&bytes, sizeof bytes, peer, channel);
    const auto end = occupy(out_free_[peer], transfer_seconds(link_, static_cast<double>(bytes)));
    inner_->send(data, bytes, peer, channel);
    wait_until(end);
  }
  void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    std::int64_t sent = 0;  // this message also makes both ends meet
    inner_->receive(&sent, sizeof sent, peer, channel);
    const auto end = occupy(in_free_[peer], transfer_seconds(link_, static_cast<double>(sent)));
    inner_->receive(data, bytes, peer, channel);
    wait_until(end);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  void throw_if_aborted() override {
    if (abort_) abort_->throw_if_aborted();
  }

 private:
  // Occupies the link for `seconds` from when it is free, but not before now; returns the end of that time.
  Clock::time_point occupy(Clock::time_point& link_free, double seconds) {
    const std::lock_guard lock(mutex_);
    link_free = std::max(Clock::now(), link_free) + duration(seconds);
    return link_free;
  }
  Clock::time_point occupy_ring(std::span<const int> group, double seconds) {
    if (group.size() < 2) return Clock::now();
    const std::size_t index = index_in_group(group, rank(), size());
    auto& to_next = out_free_[group[(index + 1) % group.size()]];
    auto& from_previous = in_free_[group[(index + group.size() - 1) % group.size()]];
    const std::lock_guard lock(mutex_);
    to_next = from_previous = std::max({Clock::now(), to_next, from_previous}) + duration(seconds);
    return to_next;
  }
  static Clock::duration duration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  void wait_until(Clock::time_point end) {
    constexpr auto kLook = std::chrono::milliseconds(20);  // an abort goes unnoticed for at most this
    for (auto now = Clock::now(); now < end; now = Clock::now()) {
      throw_if_aborted();
      sleep_until(std::min(end, now + kLook));
    }
  }

  const std::unique_ptr<Comm> inner_;
  AbortAware* const abort_;  // inner_ if it is AbortAware, else null
  const LinkModel link_;
  std::mutex mutex_;
  std::vector<Clock::time_point> out_free_, in_free_;  // by peer: when the link to and from it is free
};

}  // namespace

std::unique_ptr<Comm> throttle(std::unique_ptr<Comm> inner, const LinkModel& link) {
  if (!inner) throw Error("there is no Comm to throttle: the pointer is null");
  const auto sound = [](double x) { return std::isfinite(x) && x >= 0; };
  if (!sound(link.latency) || !sound(link.bandwidth))
    throw Error(fmt::format("a link of {} s and {} bytes/s: both must be finite and not negative",
                            link.latency, link.bandwidth));
  return std::make_unique<ThrottledComm>(std::move(inner), link);
}

}  // namespace tandem::engine
