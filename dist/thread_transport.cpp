#include <tandem/dist/thread_transport.h>

#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

using Route = Transport::Route;
using Request = Transport::Request;

/// The sends of one route that wait for a receive, or the receives that wait for a send. The later of the two
/// calls copies the data from the sender's memory to the receiver's.
struct ThreadPost::Box {
  enum class State : std::uint8_t { waiting, moving, ended, too_long };
  struct End {
    explicit End(Box& b) : box(b) {}
    Box& box;
    std::byte* data = nullptr;
    std::int64_t bytes = 0;  // of a receiver: at most this many
    bool sends = false;
    std::uint64_t channel = 0;
    int rank = 0;
    std::atomic<State> state = State::waiting;
    End* next = nullptr;  // among those that wait, or among the unused
  };

  static constexpr int kEnds = 32;  // more than calls of one lane need; others are made when they are needed
  Box() {
    for (int i = 0; i < kEnds; ++i) free(*all.emplace_back(std::make_unique<End>(*this)));
  }

  // Takes the first end of the other kind that waits, or null.
  End* take(bool sender) {
    if (!first || first->sends != sender) return nullptr;
    End* const end = std::exchange(first, first->next);
    if (!first) last = nullptr;
    end->state.store(State::moving, std::memory_order_relaxed);
    return end;
  }
  End& add() {
    if (!unused) {
      all.push_back(std::make_unique<End>(*this));
      unused = all.back().get();
    }
    End& end = *std::exchange(unused, unused->next);
    end.next = nullptr;
    end.state.store(State::waiting, std::memory_order_relaxed);
    (last ? last->next : first) = &end;
    last = &end;
    return end;
  }
  void remove(End& end) {  // one that waits
    End* before = nullptr;
    for (End* e = first; e != &end; e = e->next) before = e;
    (before ? before->next : first) = end.next;
    if (last == &end) last = before;
  }
  void free(End& end) { end.next = std::exchange(unused, &end); }

  std::mutex mutex;
  End *first = nullptr, *last = nullptr;  // all senders, or all receivers
  End* unused = nullptr;
  std::vector<std::unique_ptr<End>> all;
};

namespace {

using Box = ThreadPost::Box;

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadPost> post, int rank, std::function<void(const std::string&)> abort)
      : post_(std::move(post)), rank_(rank), abort_(std::move(abort)) {}
  int rank() const override { return rank_; }
  int size() const override { return post_->size(); }

  Request send(const Route& to, const std::byte* data, std::int64_t bytes) override {
    return begin(post_->box(rank_, to), to, true, const_cast<std::byte*>(data), bytes);
  }
  Request receive(const Route& from, std::byte* data, std::int64_t capacity) override {
    return begin(post_->box(from.peer, {rank_, from.channel, from.part}), from, false, data, capacity);
  }
  bool ended(Request& request) override {
    auto& end = *static_cast<Box::End*>(request.handle);
    const Box::State state = end.state.load(std::memory_order_acquire);
    if (state < Box::State::ended) return false;
    request.handle = nullptr;
    const std::lock_guard lock(end.box.mutex);
    end.box.free(end);
    if (state == Box::State::too_long) refuse_length(end.channel);
    return true;
  }
  void cancel(std::span<Request> requests) noexcept override {
    for (Request& request : requests) {
      if (!request.handle) continue;
      auto& end = *static_cast<Box::End*>(std::exchange(request.handle, nullptr));
      std::unique_lock lock(end.box.mutex);
      if (end.state.load(std::memory_order_relaxed) == Box::State::waiting) {
        end.box.remove(end);
      } else {
        lock.unlock();  // the other end still copies
        while (end.state.load(std::memory_order_acquire) < Box::State::ended) std::this_thread::yield();
        lock.lock();
      }
      end.box.free(end);
    }
  }
  Doorbell& bell(std::uint64_t channel) override { return post_->bell(rank_, channel); }
  bool can_ring(int) const override { return true; }
  void ring(int peer, std::uint64_t channel) override { post_->bell(peer, channel).ring(); }
  bool copies(int) const override { return true; }
  void abort(const std::string& reason) override { abort_(reason); }
  void throw_if_aborted(bool) override { post_->abort_flag().check(); }

 private:
  Request begin(Box& box, const Route& route, bool sends, std::byte* data, std::int64_t bytes) {
    std::unique_lock lock(box.mutex);
    Box::End* const other = box.take(!sends);
    if (!other) {
      Box::End& end = box.add();
      end.data = data, end.bytes = bytes, end.sends = sends, end.channel = route.channel, end.rank = rank_;
      return {&end};
    }
    lock.unlock();
    const std::int64_t sent = sends ? bytes : other->bytes, capacity = sends ? other->bytes : bytes;
    const bool fits = sent <= capacity;
    if (fits && sent > 0)
      std::memcpy(sends ? other->data : data, sends ? data : other->data, static_cast<std::size_t>(sent));
    const int peer = other->rank;  // `other` belongs to its rank again once it has ended
    other->state.store(fits ? Box::State::ended : Box::State::too_long, std::memory_order_release);
    post_->bell(peer, route.channel).ring();
    if (!fits) refuse_length(route.channel);
    return {};
  }
  [[noreturn]] void refuse_length(std::uint64_t channel) const {
    throw Error(
        fmt::format("channel {}: rank {}: a message is longer than its receiver expects", channel, rank_));
  }

  const std::shared_ptr<ThreadPost> post_;
  const int rank_;
  const std::function<void(const std::string&)> abort_;
};

}  // namespace

ThreadPost::ThreadPost(int size, AbortFlag& abort)
    : size_(size), abort_(abort), bells_(static_cast<std::size_t>(size)) {}
ThreadPost::~ThreadPost() = default;

std::size_t ThreadPost::KeyHash::operator()(const Key& key) const {
  const std::uint64_t pair = static_cast<std::uint64_t>(key.from) << 34 |
                             static_cast<std::uint64_t>(key.to) << 2 | static_cast<std::uint64_t>(key.part);
  return static_cast<std::size_t>((key.channel ^ pair * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu);
}

ThreadPost::Box& ThreadPost::box(int from, const Route& to) {
  const std::lock_guard lock(mutex_);
  auto& box = boxes_[{from, to.peer, to.channel, to.part}];
  if (!box) box = std::make_unique<Box>();
  return *box;
}

Doorbell& ThreadPost::bell(int rank, std::uint64_t channel) {
  return bells_[static_cast<std::size_t>(rank)][channel % kBells];
}

void ThreadPost::ring_all() {
  for (auto& bells : bells_)
    for (Doorbell& bell : bells) bell.ring();
}

std::unique_ptr<Transport> thread_transport(std::shared_ptr<ThreadPost> post, int rank,
                                            std::function<void(const std::string&)> abort) {
  return std::make_unique<ThreadTransport>(std::move(post), rank, std::move(abort));
}

}  // namespace tandem::engine
