#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tandem/dist/doorbell.h>

namespace tandem::engine {

/// Messages between ranks, of which MessageComm makes transfers and collectives. No call blocks. Several
/// threads can use a Transport at once, each with requests of its own.
class Transport {
 public:
  /// Messages of one part of a call, channel, and pair of ranks arrive in order; different parts do not mix.
  enum class Part : std::uint8_t { transfer, scatter, gather };
  static constexpr int kParts = 3;
  struct Route {
    int peer = 0;
    std::uint64_t channel = 0;
    Part part = Part::transfer;
  };
  /// A message under way.
  struct Request {
    void* handle = nullptr;  ///< the Transport's own; null once the message has ended
    double due = 0;          ///< the message cannot end before this time (steady_seconds); 0: not known
  };

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Begins to send. `data` must not change until the request has ended.
  virtual Request send(const Route& to, const std::byte* data, std::int64_t bytes) = 0;
  /// Begins to receive a message of at most `capacity` bytes. `data` belongs to the Transport until the
  /// request has ended.
  virtual Request receive(const Route& from, std::byte* data, std::int64_t capacity) = 0;
  /// Returns true if the message has ended: it has arrived, or what was sent can be overwritten.
  virtual bool ended(Request& request) = 0;
  /// Gives up messages after an error, as far as the Transport can.
  virtual void cancel(std::span<Request> requests) noexcept = 0;

  /// The bell that wakes this rank's calls in `channel`.
  virtual Doorbell& bell(std::uint64_t channel) = 0;
  /// Whether `ring` reaches the peer. If not, the peer must poll.
  virtual bool can_ring(int peer) const = 0;
  virtual void ring(int peer, std::uint64_t channel) = 0;
  /// Whether messages with the peer are copies in this machine's memory. The calls themselves make these, so
  /// nothing moves while a call sums.
  virtual bool copies(int peer) const = 0;

  /// Makes `throw_if_aborted` throw Aborted with `reason` on every rank that it can reach, and wakes them.
  virtual void abort(const std::string& reason) = 0;
  /// `listen` also asks whether other ranks have sent an abort, which costs more than a look at a flag.
  virtual void throw_if_aborted(bool listen) = 0;
};

}  // namespace tandem::engine
