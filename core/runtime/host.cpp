#include <tandem/core/runtime/host.h>

#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/kernel.h>

namespace tandem::engine {

FunctionHost::FunctionHost(Fill fill, Deliver deliver)
    : fill_(std::move(fill)), deliver_(std::move(deliver)) {
  if (!fill_ || !deliver_) throw Error("a FunctionHost needs both of its functions: one is empty");
}

void FunctionHost::fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext& rank,
                        std::span<std::byte> destination) {
  if (microbatch != 0)
    throw Error(
        fmt::format("input '{}' of micro-batch {}: a FunctionHost has one micro-batch; derive from Host",
                    name, microbatch));
  if (rank.replicas > 1)
    throw Error(
        fmt::format("input '{}' of replica {}: a FunctionHost has one replica, and would give all the same "
                    "samples; derive from Host",
                    name, rank.replica));
  fill_(name, batch, destination);
}

void FunctionHost::deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
                           std::span<const std::byte> value) {
  if (rank.replica == 0) deliver_(name, batch, value);
}

}  // namespace tandem::engine
