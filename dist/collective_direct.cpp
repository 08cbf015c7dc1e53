#include <algorithm>

#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/collective_call.h>
#include <tandem/dist/fold.h>

namespace tandem::engine {
namespace {

using Part = Transport::Part;

// The streams to and from one other member. Those that the call does not need are empty.
struct Peer {
  Stream *scatter_out, *scatter_in, *gather_out, *gather_in;
};
constexpr std::size_t kStreams = 4;

// Sums of short data need no streams: the first messages carry it.
void fold_short(Call& call) {
  Scratch& s = call.scratch;
  for (std::size_t i = 0; i < call.members(); ++i) s.sources[i] = i == call.me ? call.data : s.in[i].data;
  fold_ranks(call.dtype, s.sources, {&call.data, 1}, 0, call.count);
}

}  // namespace

double run_direct(Call& call, std::int64_t segment) {
  Scratch& s = call.scratch;
  Transport& transport = call.transport;
  const std::size_t me = call.me, members = call.members();
  const bool is_short = call.kind == CallKind::all_reduce && call.bytes() <= FirstMessage::kInlineBytes;
  const bool sums = call.sums() && !is_short, gathers = call.gathers() && !is_short;
  const std::int64_t ring_bytes = Stream::kWindow * segment;
  if (sums) s.reserve_ring(static_cast<std::int64_t>(members) * ring_bytes);

  const auto mine = [&](std::size_t step) { return (me + step) % members; };  // next first, so not all to one
  call.write_first_message(segment, is_short ? call.bytes() : 0);
  const auto length = static_cast<std::int64_t>(kHeaderBytes) + (is_short ? call.bytes() : 0);
  for (std::size_t step = 1; step < members; ++step) {
    const std::size_t i = mine(step);
    const auto scatter = call.route(i, Part::scatter), gather = call.route(i, Part::gather);
    s.receives[i] = transport.receive(scatter, reinterpret_cast<std::byte*>(&s.in[i]), sizeof s.in[i]);
    s.sends[i] = transport.send(scatter, reinterpret_cast<const std::byte*>(&s.out), length);
    std::byte* const ring_of_peer =
        sums ? s.ring.data() + static_cast<std::int64_t>(i) * ring_bytes : nullptr;
    std::byte *const theirs = call.data + call.begin(i), *const own = call.data + call.begin(me);
    s.streams.emplace_back(scatter, true, theirs, sums ? call.slice_bytes(i) : 0, segment);
    s.streams.emplace_back(scatter, false, ring_of_peer, sums ? call.slice_bytes(me) : 0, segment, true);
    s.streams.emplace_back(gather, true, own, gathers ? call.slice_bytes(me) : 0, segment);
    s.streams.emplace_back(gather, false, theirs, gathers ? call.slice_bytes(i) : 0, segment);
  }
  const auto peer = [&](std::size_t step) {
    Stream* const first = &s.streams[kStreams * (step - 1)];
    return Peer{first, first + 1, first + 2, first + 3};
  };
  const Stream own({}, false, call.data + call.begin(me), sums ? call.slice_bytes(me) : 0, segment);
  const auto fold_segment = [&](std::int64_t k) {
    s.sources[me] = own.at(k);
    for (std::size_t step = 1; step < members; ++step) s.sources[mine(step)] = peer(step).scatter_in->at(k);
    call.fold(own.at(k), own.bytes_of(k));
  };

  double met = 0;
  std::int64_t folded = 0;
  std::size_t come = 0;  // first messages
  call.progress([&](Look& look) {
    std::int64_t arrived = own.segments();
    for (std::size_t step = 1; step < members; ++step) {
      const std::size_t i = mine(step);
      if (!s.come[i] && look_at(transport, s.receives[i], look)) {
        call.check_first_message(s.in[i], call.group[i]);
        s.come[i] = true;
        if (++come == members - 1) met = steady_seconds();
      }
      look_at(transport, s.sends[i], look);
      const Peer p = peer(step);
      p.scatter_out->advance(transport, Stream::kAll, look);
      p.scatter_in->advance(transport, s.come[i] ? folded + Stream::kWindow : 0, look);
      p.gather_out->advance(transport, sums ? folded : Stream::kAll, look);
      // Sums overwrite the operands that were sent.
      const std::int64_t sent = p.scatter_out->finished() ? Stream::kAll : p.scatter_out->ended();
      p.gather_in->advance(transport, s.come[i] ? sent : 0, look);
      arrived = std::min(arrived, p.scatter_in->ended());
    }
    for (; folded < arrived; ++folded) {
      fold_segment(folded);
      look.moved = true;
    }
    look.finished &= folded == own.segments();
  });
  if (is_short && call.count > 0) fold_short(call);
  return met;
}

}  // namespace tandem::engine
