#include <tandem/dist/thread_comm.h>

#include <mutex>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/abort.h>
#include <tandem/dist/fold.h>
#include <tandem/dist/group.h>
#include <tandem/dist/message_comm.h>
#include <tandem/dist/rendezvous.h>
#include <tandem/dist/slow_comm.h>
#include <tandem/dist/slow_transport.h>
#include <tandem/dist/thread_transport.h>

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

std::unique_ptr<Comm> message_comm(const std::shared_ptr<ThreadWorld::State>& world, int rank,
                                   const CommOptions& options) {
  auto transport = thread_transport(std::shared_ptr<ThreadPost>(world, &world->post), rank,
                                    [w = world.get()](const std::string& reason) { w->stop(reason); });
  if (options.link) transport = slow_transport(std::move(transport), *options.link);
  return std::make_unique<MessageComm>(std::move(transport), options);
}

// Sums, barriers, and transfers take the direct way between the callers' buffers; other collectives are
// messages.
class ThreadComm final : public Comm, public AbortAware {
 public:
  ThreadComm(std::shared_ptr<ThreadWorld::State> world, int rank, const CommOptions& options)
      : world_(std::move(world)), rank_(rank), messages_(message_comm(world_, rank, options)) {}
  int rank() const override { return rank_; }
  int size() const override { return world_->size; }

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
  void reduce_scatter_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                          std::uint64_t channel, int threads) override {
    messages_->reduce_scatter_sum(data, count, dtype, group, channel, threads);
  }
  void all_gather(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                  std::uint64_t channel) override {
    messages_->all_gather(data, count, dtype, group, channel);
  }
  void broadcast(void* data, std::int64_t bytes, int root, std::span<const int> group,
                 std::uint64_t channel) override {
    messages_->broadcast(data, bytes, root, group, channel);
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
  void abort(const std::string& reason) override { world_->stop(reason); }
  void throw_if_aborted() override { world_->abort.check(); }

 private:
  const std::shared_ptr<ThreadWorld::State> world_;
  const int rank_;
  const std::unique_ptr<Comm> messages_;
  Workers workers_;
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
  if (options.collective == CollectiveAlgorithm::ring) return message_comm(state_, rank, options);
  auto in_memory = std::make_unique<ThreadComm>(state_, rank, options);
  if (!options.link) return in_memory;
  return slow_comm(std::move(in_memory), message_comm(state_, rank, options), *options.link);
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
