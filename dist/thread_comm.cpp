#include <tandem/dist/thread_comm.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <mutex>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/sleep.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/abort.h>
#include <tandem/dist/fold.h>
#include <tandem/dist/group.h>
#include <tandem/dist/message_comm.h>
#include <tandem/dist/rendezvous.h>
#include <tandem/dist/slow_transport.h>
#include <tandem/dist/thread_transport.h>
#include <tandem/dist/wait.h>

namespace tandem::engine {

struct ThreadWorld::State {
  explicit State(int size) : size(size), post(size, abort) {}

  struct Route {
    int from, to;
    std::uint64_t channel;
    bool operator==(const Route&) const = default;
  };
  struct RouteHash {
    std::size_t operator()(const Route& r) const {
      const std::uint64_t pair = static_cast<std::uint64_t>(r.from) << 32 | static_cast<std::uint32_t>(r.to);
      return static_cast<std::size_t>((r.channel ^ pair * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu);
    }
  };

  Mailbox& mailbox(int from, int to, std::uint64_t channel) {
    const std::lock_guard lock(mutex);
    auto& box = mailboxes[{from, to, channel}];
    if (!box) box = std::make_unique<Mailbox>(from, to, channel);
    return *box;
  }
  Meeting& meeting(std::uint64_t channel) {
    const std::lock_guard lock(mutex);
    auto& found = meetings[channel];
    if (!found) found = std::make_unique<Meeting>(channel);
    return *found;
  }
  void stop(const std::string& reason) {
    if (!abort.raise(reason)) return;
    const std::lock_guard lock(mutex);
    for (const auto& [route, box] : mailboxes) box->wake();
    for (const auto& [channel, m] : meetings) m->wake();
    post.ring_all();
  }

  const int size;
  AbortFlag abort;
  std::mutex mutex;  // guards the two tables; their entries live as long as the world
  std::unordered_map<Route, std::unique_ptr<Mailbox>, RouteHash> mailboxes;
  std::unordered_map<std::uint64_t, std::unique_ptr<Meeting>> meetings;
  ThreadPost post;
};

namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<Transport> transport_of(const std::shared_ptr<ThreadWorld::State>& world, int rank,
                                        const CommOptions& options) {
  auto transport = thread_transport(std::shared_ptr<ThreadPost>(world, &world->post), rank,
                                    [w = world.get()](const std::string& reason) { w->stop(reason); });
  return options.link ? slow_transport(std::move(transport), *options.link) : std::move(transport);
}

// Sums, barriers, and transfers take the direct way between the callers' buffers; other collectives are
// messages.
class ThreadComm : public MessageComm {
 public:
  ThreadComm(std::shared_ptr<ThreadWorld::State> world, int rank, const CommOptions& options)
      : MessageComm(transport_of(world, rank, options), options), world_(std::move(world)), rank_(rank) {}

  double all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                        std::uint64_t channel, int threads) override {
    const std::size_t index = index_in_group(group, rank_, size());
    check_summable(dtype, rank_, channel);
    workers_.reserve(threads);
    world_->abort.check();
    if (group.size() == 1) return steady_seconds();
    return world_->meeting(channel).all_reduce(group, index, data, count, dtype, world_->abort,
                                               {workers_, threads});
  }
  void barrier(std::span<const int> group, std::uint64_t channel) override {
    const std::size_t index = index_in_group(group, rank_, size());
    world_->abort.check();
    if (group.size() > 1) world_->meeting(channel).barrier(group, index, world_->abort);
  }
  void send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    check_peer("send", rank_, peer, size());
    world_->mailbox(rank_, peer, channel).send(data, bytes, world_->abort);
  }
  void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    check_peer("receive", rank_, peer, size());
    world_->mailbox(peer, rank_, channel).receive(data, bytes, world_->abort);
  }

 private:
  const std::shared_ptr<ThreadWorld::State> world_;
  const int rank_;
  Workers workers_;
};

// Takes the time of a link, though memory moves the data. The bytes of a transfer occupy the link of the two
// ranks, and it arrives a latency later. An all-reduce occupies each rank's link of collectives for ĉ bytes,
// and takes two latencies (CollectiveAlgorithm::direct). A call sleeps once, until its end: messages of their
// own would take cores from computation, which a network card does not.
class SlowThreadComm final : public ThreadComm {
 public:
  SlowThreadComm(std::shared_ptr<ThreadWorld::State> world, int rank, const CommOptions& options)
      : ThreadComm(std::move(world), rank, options),
        link_(*options.link),
        to_peers_(static_cast<std::size_t>(size())) {}

  double all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                        std::uint64_t channel, int threads) override {
    ThreadComm::barrier(group, channel);
    const double met = steady_seconds();
    const auto ranks = static_cast<double>(group.size());
    const auto end =
        occupy(of_collectives_, 2 * (ranks - 1) / ranks * static_cast<double>(count * size_of(dtype)));
    ThreadComm::all_reduce_sum(data, count, dtype, group, channel, threads);
    if (group.size() > 1) wait_until(end + 2 * latency());
    return met;
  }
  void barrier(std::span<const int> group, std::uint64_t channel) override {
    ThreadComm::barrier(group, channel);
    if (group.size() > 1) wait_until(Clock::now() + latency());
  }
  void send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    ThreadComm::send(&bytes, sizeof bytes, peer, channel);
    const auto end = occupy(to_peers_[static_cast<std::size_t>(peer)].out, static_cast<double>(bytes));
    ThreadComm::send(data, bytes, peer, channel);
    wait_until(end);
  }
  void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    std::int64_t sent = 0;  // this message also makes both ends meet
    ThreadComm::receive(&sent, sizeof sent, peer, channel);
    const auto end = occupy(to_peers_[static_cast<std::size_t>(peer)].in, static_cast<double>(sent));
    ThreadComm::receive(data, bytes, peer, channel);
    wait_until(end + latency());
  }

 private:
  // Occupies a link from when it is free, but not before now, for so many bytes; returns the end.
  Clock::time_point occupy(Clock::time_point& link_free, double bytes) {
    const std::lock_guard lock(mutex_);
    link_free = std::max(link_free, Clock::now());
    if (link_.bandwidth > 0) link_free += duration(bytes / link_.bandwidth);
    return link_free;
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

  const LinkModel link_;
  struct FreeFrom {  // when the bytes of the transfers so far have passed
    Clock::time_point out, in;
  };
  std::mutex mutex_;                // guards all below
  std::vector<FreeFrom> to_peers_;  // by rank
  Clock::time_point of_collectives_;
};

}  // namespace

ThreadWorld::ThreadWorld(int size) {
  if (size < 1) throw Error(fmt::format("a world of {} ranks: there must be at least one", size));
  state_ = std::make_shared<State>(size);
}

int ThreadWorld::size() const { return state_->size; }

std::unique_ptr<Comm> ThreadWorld::comm(int rank, const CommOptions& options) const {
  if (rank < 0 || rank >= size())
    throw Error(fmt::format("there is no rank {} in a world of {} ranks", rank, size()));
  std::unique_ptr<Comm> comm;
  if (options.collective == CollectiveAlgorithm::ring)
    comm = std::make_unique<MessageComm>(transport_of(state_, rank, options), options);
  else if (options.link)
    comm = std::make_unique<SlowThreadComm>(state_, rank, options);
  else
    comm = std::make_unique<ThreadComm>(state_, rank, options);
  if (!options.watch) return comm;
  return watched(std::move(comm),
                 std::make_shared<CollectiveWatch>(transport_of(state_, rank, {}), *options.watch));
}

void ThreadWorld::abort(const std::string& reason) const { state_->stop(reason); }

std::vector<std::unique_ptr<Comm>> thread_comms(int ranks, const CommOptions& options) {
  std::vector<std::unique_ptr<Comm>> comms;
  if (ranks == 1) return comms;
  const ThreadWorld world(ranks);
  for (int r = 0; r < ranks; ++r) comms.push_back(world.comm(r, options));
  return comms;
}

}  // namespace tandem::engine
