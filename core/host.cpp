#include <tandem/core/host.h>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/kernel.h>

namespace tandem {

void FunctionHost::fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext&,
                        std::span<std::byte> destination) {
  if (microbatch != 0)
    throw Error(
        fmt::format("input '{}' of micro-batch {}: a FunctionHost has one micro-batch; derive from Host",
                    name, microbatch));
  fill_(name, batch, destination);
}

void FunctionHost::deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
                           std::span<const std::byte> value) {
  if (rank.replica == 0) deliver_(name, batch, value);
}

}  // namespace tandem
