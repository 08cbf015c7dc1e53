#include <tandem/dist/slow_comm.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <utility>

#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/abort.h>
#include <tandem/dist/wait.h>

namespace tandem::engine {
namespace {

using Clock = std::chrono::steady_clock;

class SlowComm final : public Comm, public AbortAware {
 public:
  SlowComm(std::unique_ptr<Comm> inner, std::unique_ptr<Comm> others, const LinkModel& link)
      : inner_(std::move(inner)),
        others_(std::move(others)),
        abort_(dynamic_cast<AbortAware*>(inner_.get())),
        link_(link) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  double all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                        std::uint64_t channel, int threads) override {
    inner_->barrier(group, channel);
    const double met = steady_seconds();
    const auto ranks = static_cast<double>(group.size());
    const auto end = occupy({&out_free_, &in_free_},
                            2 * (ranks - 1) / ranks * static_cast<double>(count * size_of(dtype)));
    inner_->all_reduce_sum(data, count, dtype, group, channel, threads);
    if (group.size() > 1) wait_until(end + 2 * latency());
    return met;
  }
  void reduce_scatter_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                          std::uint64_t channel, int threads) override {
    others_->reduce_scatter_sum(data, count, dtype, group, channel, threads);
  }
  void all_gather(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                  std::uint64_t channel) override {
    others_->all_gather(data, count, dtype, group, channel);
  }
  void broadcast(void* data, std::int64_t bytes, int root, std::span<const int> group,
                 std::uint64_t channel) override {
    others_->broadcast(data, bytes, root, group, channel);
  }
  void barrier(std::span<const int> group, std::uint64_t channel) override {
    inner_->barrier(group, channel);
    if (group.size() > 1) wait_until(Clock::now() + latency());
  }
  void send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    inner_->send(&bytes, sizeof bytes, peer, channel);
    const auto end = occupy({&out_free_}, static_cast<double>(bytes));
    inner_->send(data, bytes, peer, channel);
    wait_until(end);
  }
  void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    std::int64_t sent = 0;  // this message also makes both ends meet
    inner_->receive(&sent, sizeof sent, peer, channel);
    const auto end = occupy({&in_free_}, static_cast<double>(sent));
    inner_->receive(data, bytes, peer, channel);
    wait_until(end + latency());
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  void throw_if_aborted() override {
    if (abort_) abort_->throw_if_aborted();
  }

 private:
  // Occupies these links from when all are free, but not before now, for so many bytes; returns the end.
  Clock::time_point occupy(std::initializer_list<Clock::time_point*> links, double bytes) {
    const std::lock_guard lock(mutex_);
    Clock::time_point end = Clock::now();
    for (const auto* free : links) end = std::max(end, *free);
    if (link_.bandwidth > 0) end += duration(bytes / link_.bandwidth);
    for (auto* free : links) *free = end;
    return end;
  }
  static Clock::duration duration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  Clock::duration latency() const { return duration(link_.latency); }
  void wait_until(Clock::time_point end) {
    constexpr auto kLook = std::chrono::milliseconds(20);  // an abort goes unnoticed for at most this
    for (auto now = Clock::now(); now < end; now = Clock::now()) {
      throw_if_aborted();
      sleep_until(std::min(end, now + kLook));
    }
  }

  const std::unique_ptr<Comm> inner_, others_;
  AbortAware* const abort_;  // inner_ if it is AbortAware, else null
  const LinkModel link_;
  std::mutex mutex_;
  Clock::time_point out_free_, in_free_;  // when this rank's links are free
};

}  // namespace

std::unique_ptr<Comm> slow_comm(std::unique_ptr<Comm> inner, std::unique_ptr<Comm> others,
                                const LinkModel& link) {
  require_sound(link);
  return std::make_unique<SlowComm>(std::move(inner), std::move(others), link);
}

}  // namespace tandem::engine
