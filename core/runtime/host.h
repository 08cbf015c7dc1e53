#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace tandem::engine {

struct RankContext;

/// The program's outside: supplies what an `input` node asks for and takes what a `result` node
/// delivers, always by batch number. Called from lane threads, possibly several at once.
class Host {
 public:
  virtual ~Host() = default;
  /// Writes input `name` of `batch` for this rank and micro-batch into `destination`.
  virtual void fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext& rank,
                    std::span<std::byte> destination) = 0;
  /// Takes result `name` of `batch`: the value of the whole global batch, of the dtype and shape that the
  /// graph gave the result, with a leading model axis where there are several models. Every replica of the
  /// stage that makes it delivers it, with the same bits; `rank.replica == 0` picks one.
  virtual void deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
                       std::span<const std::byte> value) = 0;
};

/// A Host of two functions, both of which must be given, for programs of one replica and one micro-batch.
/// They are called from several threads at once where there are several stages or compute lanes: what they
/// share needs a lock.
class FunctionHost final : public Host {
 public:
  using Fill = std::function<void(const std::string& name, std::int64_t batch, std::span<std::byte>)>;
  using Deliver =
      std::function<void(const std::string& name, std::int64_t batch, std::span<const std::byte>)>;
  FunctionHost(Fill fill, Deliver deliver);
  /// Throws Error when asked for a second micro-batch or replica.
  void fill(const std::string& name, std::int64_t batch, int microbatch, const RankContext&,
            std::span<std::byte> destination) override;
  void deliver(const std::string& name, std::int64_t batch, const RankContext& rank,
               std::span<const std::byte> value) override;

 private:
  Fill fill_;
  Deliver deliver_;
};

}  // namespace tandem::engine
