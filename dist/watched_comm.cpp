#include <utility>

#include <tandem/dist/collective_watch.h>

namespace tandem::engine {
namespace {

class WatchedComm final : public Comm {
 public:
  WatchedComm(std::unique_ptr<Comm> comm, std::shared_ptr<CollectiveWatch> watch)
      : comm_(std::move(comm)), watch_(std::move(watch)) {
    watch_->add(*comm_);
  }
  ~WatchedComm() override { watch_->remove(*comm_); }
  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }

  double all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                        std::uint64_t channel, int threads) override {
    Recorded call(*watch_, {.kind = CollectiveKind::all_reduce,
                            .threads = threads,
                            .channel = channel,
                            .bytes = count * size_of(dtype)});
    return call.met = comm_->all_reduce_sum(data, count, dtype, group, channel, threads);
  }
  void reduce_scatter_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                          std::uint64_t channel, int threads) override {
    const Recorded call(*watch_, {.kind = CollectiveKind::reduce_scatter,
                                  .threads = threads,
                                  .channel = channel,
                                  .bytes = count * size_of(dtype)});
    comm_->reduce_scatter_sum(data, count, dtype, group, channel, threads);
  }
  void all_gather(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                  std::uint64_t channel) override {
    const Recorded call(
        *watch_, {.kind = CollectiveKind::all_gather, .channel = channel, .bytes = count * size_of(dtype)});
    comm_->all_gather(data, count, dtype, group, channel);
  }
  void broadcast(void* data, std::int64_t bytes, int root, std::span<const int> group,
                 std::uint64_t channel) override {
    const Recorded call(
        *watch_, {.kind = CollectiveKind::broadcast, .peer = root, .channel = channel, .bytes = bytes});
    comm_->broadcast(data, bytes, root, group, channel);
  }
  void send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    const Recorded call(*watch_,
                        {.kind = CollectiveKind::send, .peer = peer, .channel = channel, .bytes = bytes});
    comm_->send(data, bytes, peer, channel);
  }
  void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    const Recorded call(*watch_,
                        {.kind = CollectiveKind::receive, .peer = peer, .channel = channel, .bytes = bytes});
    comm_->receive(data, bytes, peer, channel);
  }
  void barrier(std::span<const int> group, std::uint64_t channel) override {
    const Recorded call(*watch_, {.kind = CollectiveKind::barrier, .channel = channel});
    comm_->barrier(group, channel);
  }
  void abort(const std::string& reason) override { comm_->abort(reason); }

  void announce(std::uint64_t channel, std::int64_t batch, std::string_view name) override {
    watch_->record().announce(channel, batch, name);
  }
  void running(bool now) override { watch_->record().running(now); }

 private:
  struct Recorded {
    Recorded(CollectiveWatch& watch, const CollectiveCall& call)
        : record(watch.record()), place(record.begin(call)) {}
    ~Recorded() { record.end(place, met); }
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;
    CollectiveRecord& record;
    const std::size_t place;
    double met = 0;
  };

  const std::unique_ptr<Comm> comm_;
  const std::shared_ptr<CollectiveWatch> watch_;
};

}  // namespace

std::unique_ptr<Comm> watched(std::unique_ptr<Comm> comm, std::shared_ptr<CollectiveWatch> watch) {
  return std::make_unique<WatchedComm>(std::move(comm), std::move(watch));
}

}  // namespace tandem::engine
