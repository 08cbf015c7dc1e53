#include <tandem/dist/message_comm.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/collective_call.h>
#include <tandem/dist/fold.h>
#include <tandem/dist/group.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kSegment = 512 << 10, kSegmentOfTwo = 4 << 20;

CommOptions checked(CommOptions options) {
  if (auto& segment = options.segment_bytes)
    segment = std::clamp<std::int64_t>(align_up(*segment), kAlignment, 1 << 30);
  options.message_bytes = std::clamp<std::int64_t>(options.message_bytes, 1, 1 << 30);
  return options;
}

}  // namespace

struct MessageComm::State {
  State(std::unique_ptr<Transport> t, const CommOptions& o) : transport(std::move(t)), options(checked(o)) {}

  bool uses_ring(std::size_t members) const {
    return !is_direct(options.collective, static_cast<int>(members));
  }
  std::int64_t chunk(std::int64_t bytes, std::size_t members) const {
    return std::min(ring_chunk_bytes(bytes, static_cast<int>(members)),
                    options.segment_bytes.value_or(kSegment));
  }
  std::int64_t segment(std::span<const int> group) const {
    const bool two = group.size() == 2 && transport->copies(group[group[0] == transport->rank() ? 1 : 0]);
    return options.segment_bytes.value_or(two ? kSegmentOfTwo : kSegment);
  }

  // Runs a call with its own scratch, which is not reused after an error.
  template <class F> auto with_scratch(F run) {
    Scratch& scratch = pool.take();
    try {
      const auto result = run(scratch);
      pool.give_back(scratch);
      return result;
    } catch (...) {
      scratch.give_up(*transport);
      throw;
    }
  }

  double collective(CallKind kind, void* data, std::int64_t count, DType dtype, std::span<const int> group,
                    std::uint64_t channel, int threads, int root = 0);
  void transfer(bool sending, std::byte* data, std::int64_t bytes, int peer, std::uint64_t channel);

  const std::unique_ptr<Transport> transport;
  const CommOptions options;
  Workers workers;
  ScratchPool pool;
};

double MessageComm::State::collective(CallKind kind, void* data, std::int64_t count, DType dtype,
                                      std::span<const int> group, std::uint64_t channel, int threads,
                                      int root) {
  const std::size_t me = index_in_group(group, transport->rank(), transport->size());
  const std::size_t root_index =
      kind == CallKind::broadcast ? index_in_group(group, root, transport->size()) : 0;
  workers.reserve(threads);
  transport->throw_if_aborted(true);
  const std::size_t members = group.size();
  if (members == 1) return steady_seconds();
  return with_scratch([&](Scratch& scratch) {
    const bool ring = uses_ring(members);
    Call call{.kind = kind,
              .data = static_cast<std::byte*>(data),
              .count = count,
              .dtype = dtype,
              .group = group,
              .me = me,
              .root = root_index,
              .channel = channel,
              .segment = ring ? chunk(count * size_of(dtype), members) : segment(group),
              .threads = threads,
              .transport = *transport,
              .workers = workers,
              .scratch = scratch};
    const std::size_t peers = ring ? 2 : members;
    scratch.fit(peers, kind == CallKind::all_gather && ring ? 2 * members : 4 * peers);
    return ring ? run_ring(call) : run_direct(call);
  });
}

void MessageComm::State::transfer(bool sending, std::byte* data, std::int64_t bytes, int peer,
                                  std::uint64_t channel) {
  transport->throw_if_aborted(true);
  with_scratch([&](Scratch& s) {
    s.fit(1, 1);
    Call call{.kind = CallKind::transfer,
              .data = data,
              .count = bytes,
              .dtype = DType::u8,
              .group = {&peer, 1},
              .me = 1,
              .root = 0,
              .channel = channel,
              .segment = options.message_bytes,
              .threads = 1,
              .transport = *transport,
              .workers = workers,
              .scratch = s};
    const Transport::Route route = call.route(0, Transport::Part::transfer);
    const bool is_short = bytes <= FirstMessage::kInlineBytes;
    if (sending)
      call.send_first(0, route, data, is_short ? bytes : 0);
    else
      call.receive_first(0, route);
    Stream& stream =
        s.streams.emplace_back(route, sending, data, is_short ? 0 : bytes, options.message_bytes);
    s.come[0] = sending;
    call.progress([&](Look& look) {
      if (!s.come[0] && has_ended(*transport, s.receives[0], look)) {
        call.check_first_message(s.in[0], peer);
        if (is_short && bytes > 0) std::memcpy(data, s.in[0].data, static_cast<std::size_t>(bytes));
        s.come[0] = true;
      }
      has_ended(*transport, s.sends[0], look);
      stream.advance(*transport, s.come[0] ? Stream::kAll : 0, look);
    });
    return true;
  });
}

MessageComm::MessageComm(std::unique_ptr<Transport> transport, const CommOptions& options)
    : state_(std::make_unique<State>(std::move(transport), options)) {}
MessageComm::~MessageComm() = default;
int MessageComm::rank() const { return state_->transport->rank(); }
int MessageComm::size() const { return state_->transport->size(); }

double MessageComm::all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                                   std::uint64_t channel, int threads) {
  check_summable(dtype, rank(), channel);
  return state_->collective(CallKind::all_reduce, data, count, dtype, group, channel, threads);
}
void MessageComm::reduce_scatter_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                                     std::uint64_t channel, int threads) {
  check_summable(dtype, rank(), channel);
  state_->collective(CallKind::reduce_scatter, data, count, dtype, group, channel, threads);
}
void MessageComm::all_gather(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                             std::uint64_t channel) {
  state_->collective(CallKind::all_gather, data, count, dtype, group, channel, 1);
}
void MessageComm::broadcast(void* data, std::int64_t bytes, int root, std::span<const int> group,
                            std::uint64_t channel) {
  state_->collective(CallKind::broadcast, data, bytes, DType::u8, group, channel, 1, root);
}
void MessageComm::barrier(std::span<const int> group, std::uint64_t channel) {
  state_->collective(CallKind::barrier, nullptr, 0, DType::f32, group, channel, 1);
}
void MessageComm::send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) {
  check_peer("send", rank(), peer, size());
  state_->transfer(true, static_cast<std::byte*>(const_cast<void*>(data)), bytes, peer, channel);
}
void MessageComm::receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) {
  check_peer("receive", rank(), peer, size());
  state_->transfer(false, static_cast<std::byte*>(data), bytes, peer, channel);
}
void MessageComm::abort(const std::string& reason) { state_->transport->abort(reason); }
void MessageComm::throw_if_aborted() { state_->transport->throw_if_aborted(true); }

}  // namespace tandem::engine
