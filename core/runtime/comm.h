#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tandem/core/base/types.h>

namespace tandem::engine {

/// Communication between ranks. Calls block the lane that makes them, without spinning, and throw
/// Aborted once any rank has called `abort`. Several lanes can call at once; `channel` tells their
/// messages apart, and messages of one channel arrive in order. Channels should be small dense numbers: below
/// 2^30 every transport keeps them apart. Implementations: dist/.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sums `count` elements in place over the ranks of `group` (ascending, containing this rank).
  /// Every element is the left fold in rank order, so all transports give the same bits. Up to `threads`
  /// threads of this rank fold and copy, the caller among them; their number changes no bit. Returns the time
  /// (`steady_seconds` of this machine) when this rank knew that all had called: until then it only waited.
  virtual double all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                                std::uint64_t channel, int threads = 1) = 0;
  /// Sums as all_reduce_sum does, but each member of the group gets only its slice: of `count` elements over
  /// n members, member i (by its place in the group) gets the sums of elements i·count/n to (i+1)·count/n.
  /// The other elements of `data` are undefined afterwards.
  virtual void reduce_scatter_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                                  std::uint64_t channel, int threads = 1) = 0;
  /// Gives every member the slices of all others; slices are those of reduce_scatter_sum.
  virtual void all_gather(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                          std::uint64_t channel) = 0;
  /// Copies `bytes` from rank `root`, a member of the group, to all other members.
  virtual void broadcast(void* data, std::int64_t bytes, int root, std::span<const int> group,
                         std::uint64_t channel) = 0;
  /// Returns when `data` can be overwritten.
  virtual void send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) = 0;
  virtual void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) = 0;
  virtual void barrier(std::span<const int> group, std::uint64_t channel) = 0;

  /// Wakes every blocked call on every rank it can reach; they throw Aborted with `reason`.
  virtual void abort(const std::string& reason) = 0;

  // What a Session tells a Comm that records its calls (dist/collective_watch.h). Others ignore it.
  /// The next call in `channel` works on this batch, for the instruction of this name.
  virtual void announce(std::uint64_t /*channel*/, std::int64_t /*batch*/, std::string_view /*name*/) {}
  /// A Program begins or ends to run.
  virtual void running(bool /*now*/) {}
};

/// The channel that a Session uses between runs. No Program uses it.
inline constexpr std::uint64_t kSessionChannel = (std::uint64_t{1} << 30) - 1;

}  // namespace tandem::engine
