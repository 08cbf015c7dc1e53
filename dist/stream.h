#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tandem/dist/transport.h>

namespace tandem::engine {

/// What one look at the messages of a call found.
struct Look {
  bool moved = false;                                    ///< something began or ended
  bool finished = true;                                  ///< nothing is left to do
  double due = std::numeric_limits<double>::infinity();  ///< when a message may end by itself
};

/// Looks whether a message has ended.
inline bool has_ended(Transport& transport, Transport::Request& request, Look& look) {
  if (!request.handle) return true;
  if (transport.ended(request)) {
    look.moved = true;
    return true;
  }
  look.finished = false;
  if (request.due > 0) look.due = std::min(look.due, request.due);
  return false;
}

/// Data that moves to or from one peer. Its segments begin and end in order, kWindow at a time.
class Stream {
 public:
  static constexpr std::int64_t kWindow = 2;
  static constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

  Stream() = default;
  /// With `ring`, the memory at `base` holds only kWindow segments, used in turn.
  Stream(const Transport::Route& route, bool sending, std::byte* base, std::int64_t bytes,
         std::int64_t segment, bool ring = false)
      : route_(route),
        sending_(sending),
        ring_(ring),
        base_(base),
        bytes_(bytes),
        segment_(segment),
        segments_((bytes + segment - 1) / segment) {}
  std::int64_t segments() const { return segments_; }
  std::int64_t ended() const { return ended_; }
  bool finished() const { return ended_ == segments_; }
  std::byte* at(std::int64_t s) const { return base_ + (ring_ ? s % kWindow : s) * segment_; }
  std::int64_t bytes_of(std::int64_t s) const { return std::min(segment_, bytes_ - s * segment_); }
  /// The bytes of the segments that have ended.
  std::int64_t ended_bytes() const { return std::min(ended_ * segment_, bytes_); }
  /// How many of the first segments lie within the first `bytes` bytes.
  std::int64_t segments_within(std::int64_t bytes) const {
    return bytes >= bytes_ ? segments_ : std::max<std::int64_t>(bytes, 0) / segment_;
  }

  /// Begins segments numbered below `limit`, and looks which have ended.
  void advance(Transport& transport, std::int64_t limit, Look& look) {
    for (; begun_ < std::min({limit, segments_, ended_ + kWindow}); ++begun_) {
      requests_[static_cast<std::size_t>(begun_ % kWindow)] =
          sending_ ? transport.send(route_, at(begun_), bytes_of(begun_))
                   : transport.receive(route_, at(begun_), bytes_of(begun_));
      look.moved = true;
    }
    while (ended_ < begun_ &&
           has_ended(transport, requests_[static_cast<std::size_t>(ended_ % kWindow)], look))
      ++ended_;
    look.finished &= finished();
  }
  std::span<Transport::Request> requests() { return requests_; }

 private:
  Transport::Route route_;
  bool sending_ = false, ring_ = false;
  std::byte* base_ = nullptr;
  std::int64_t bytes_ = 0, segment_ = 1, segments_ = 0;
  std::int64_t begun_ = 0, ended_ = 0;
  std::array<Transport::Request, kWindow> requests_{};
};

}  // namespace tandem::engine
