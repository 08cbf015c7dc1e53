#pragma once
#include <memory>

#include <tandem/core/runtime/comm.h>
#include <tandem/dist/abort.h>
#include <tandem/dist/comm_options.h>
#include <tandem/dist/transport.h>

namespace tandem::engine {

/// A Comm whose transfers and collectives consist of messages of `transport`. A waiting call sleeps.
class MessageComm : public Comm, public AbortAware {
 public:
  MessageComm(std::unique_ptr<Transport> transport, const CommOptions& options);
  ~MessageComm() override;
  int rank() const override;
  int size() const override;
  double all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                        std::uint64_t channel, int threads) override;
  void reduce_scatter_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                          std::uint64_t channel, int threads) override;
  void all_gather(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                  std::uint64_t channel) override;
  void broadcast(void* data, std::int64_t bytes, int root, std::span<const int> group,
                 std::uint64_t channel) override;
  void barrier(std::span<const int> group, std::uint64_t channel) override;
  void send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) override;
  void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) override;
  void abort(const std::string& reason) override;
  void throw_if_aborted() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::engine
