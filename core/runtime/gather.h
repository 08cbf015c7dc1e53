#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tandem/core/runtime/comm.h>

namespace tandem::engine {

/// Sends an array of bytes from every rank to `root`. There, returns one array per rank, in the order of
/// ranks; on other ranks, returns nothing. Every rank must call. The arrays can have different sizes.
std::vector<std::vector<std::byte>> gather_bytes(Comm& comm, std::span<const std::byte> mine, int root,
                                                 std::uint64_t channel);

/// The same for values of a trivially copyable type.
template <class T>
std::vector<std::vector<T>> gather(Comm& comm, std::span<const T> mine, int root, std::uint64_t channel) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::vector<T>> all;
  for (const auto& bytes : gather_bytes(comm, std::as_bytes(mine), root, channel)) {
    auto& values = all.emplace_back(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return all;
}

/// Returns the least value of all ranks, which must all call.
int least(Comm& comm, int mine, std::uint64_t channel = kSessionChannel);

/// A value, such as a hash, that must be the same on every rank.
struct Agreed {
  std::string what;  ///< it stands for this
  std::uint64_t value = 0;
};
/// Checks that these values are the same on every rank, which must all call. Otherwise throws Error on all of
/// them, which names the first value that differs: "rank 2: the ranks disagree on <what>: rank 1 has another
/// value than rank 0; …".
void agree(Comm& comm, std::span<const Agreed> mine, std::uint64_t channel);
void agree(Comm& comm, std::uint64_t mine, const std::string& what, std::uint64_t channel);

}  // namespace tandem::engine
