#include <tandem/dist/slow_transport.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include <tandem/core/runtime/timeline.h>

namespace tandem::engine {
namespace {

using Route = Transport::Route;
using Request = Transport::Request;

// What travels ahead of each message.
struct Stamp {
  double arrives = 0;  // when the last byte does, on the clock that the ranks of a machine share
  std::int64_t bytes = 0;
};

class SlowTransport final : public Transport {
 public:
  SlowTransport(std::unique_ptr<Transport> inner, const LinkModel& link)
      : inner_(std::move(inner)), link_(link), to_peers_(static_cast<std::size_t>(inner_->size())) {
    const int usual = 16 * (inner_->size() + 1);  // so many are under way at once; more are made when needed
    for (int i = 0; i < usual; ++i) all_.push_back(std::make_unique<Message>());
    for (const auto& m : all_) unused_.push_back(m.get());
  }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  Request send(const Route& to, const std::byte* data, std::int64_t bytes) override {
    Message& m = take();
    m.sends = true;
    m.ends = occupy(link_of(to).out, steady_seconds(), bytes);
    m.stamp = {m.ends + link_.latency, bytes};
    m.requests[0] = inner_->send(to, reinterpret_cast<const std::byte*>(&m.stamp), sizeof m.stamp);
    m.requests[1] = inner_->send(to, data, bytes);
    return {&m, m.ends};
  }
  Request receive(const Route& from, std::byte* data, std::int64_t capacity) override {
    Message& m = take();
    m.sends = false;
    m.link = &link_of(from);
    m.ends = 0;
    m.shares_clock = inner_->can_ring(from.peer);
    m.requests[0] = inner_->receive(from, reinterpret_cast<std::byte*>(&m.stamp), sizeof m.stamp);
    m.requests[1] = inner_->receive(from, data, capacity);
    return {&m};
  }
  bool ended(Request& request) override {
    Message& m = *static_cast<Message*>(request.handle);
    for (Request& r : m.requests)
      if (r.handle && !inner_->ended(r)) return false;
    const double now = steady_seconds();
    if (!m.sends && m.ends == 0) {  // just seen
      if (!std::exchange(m.shares_clock, true)) m.stamp.arrives = now + link_.latency;
      request.due = m.stamp.arrives;
      if (now < request.due) return false;
      m.ends = occupy(m.link->in, m.stamp.arrives - seconds(m.stamp.bytes), m.stamp.bytes);
    }
    request.due = m.ends;
    if (now < request.due) return false;
    request.handle = nullptr;
    give_back(m);
    return true;
  }
  void cancel(std::span<Request> requests) noexcept override {
    for (Request& request : requests)
      if (request.handle)
        inner_->cancel(static_cast<Message*>(std::exchange(request.handle, nullptr))->requests);
  }
  Doorbell& bell(std::uint64_t channel) override { return inner_->bell(channel); }
  bool can_ring(int peer) const override { return inner_->can_ring(peer); }
  void ring(int peer, std::uint64_t channel) override { inner_->ring(peer, channel); }
  bool copies(int) const override { return false; }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  void throw_if_aborted(bool listen) override { inner_->throw_if_aborted(listen); }

 private:
  struct FreeFrom {  // when the bytes of the messages so far have passed
    double out = 0, in = 0;
  };
  struct Message {
    bool sends = false;
    FreeFrom* link = nullptr;  // of a message to this rank
    bool shares_clock = true;  // with the sender
    double ends = 0;           // when the bytes have passed this rank's link; 0: they have not been seen yet
    Stamp stamp{};
    Request requests[2];  // of the stamp and of the data
  };

  double seconds(std::int64_t bytes) const {
    return link_.bandwidth > 0 ? static_cast<double>(bytes) / link_.bandwidth : 0;
  }
  FreeFrom& link_of(const Route& route) {
    return route.part == Part::transfer ? to_peers_[static_cast<std::size_t>(route.peer)] : of_collectives_;
  }
  // Occupies a link from when it is free, but not before `from`; returns the end.
  double occupy(double& link_free, double from, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    return link_free = std::max(from, link_free) + seconds(bytes);
  }
  Message& take() {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) {
      all_.push_back(std::make_unique<Message>());
      unused_.reserve(all_.size());
      return *all_.back();
    }
    Message& m = *unused_.back();
    unused_.pop_back();
    return m;
  }
  void give_back(Message& m) {
    const std::lock_guard lock(mutex_);
    unused_.push_back(&m);
  }

  const std::unique_ptr<Transport> inner_;
  const LinkModel link_;
  std::mutex mutex_;  // guards all below
  FreeFrom of_collectives_;
  std::vector<FreeFrom> to_peers_;  // by rank
  std::vector<std::unique_ptr<Message>> all_;
  std::vector<Message*> unused_;
};

}  // namespace

std::unique_ptr<Transport> slow_transport(std::unique_ptr<Transport> inner, const LinkModel& link) {
  require_sound(link);
  return std::make_unique<SlowTransport>(std::move(inner), link);
}

}  // namespace tandem::engine
