#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tandem {

struct RankContext;

/// The program's outside: supplies what an `input` node asks for and takes what a `result` node
/// delivers, always by batch number. Called from lane threads, possibly several at once.
class Host {
 public:
  virtual ~Host() = default;
  /// Writes input `name` of `batch` for this rank and micro-batch into `destination`.
  virtual void fill(const std::string& name, std::int64_t batch, int microbatch,
                    const RankContext& rank, std::span<std::byte> destination) = 0;
  virtual void deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
                       std::span<const std::byte> value) = 0;
};

}  // namespace tandem
