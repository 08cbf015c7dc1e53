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

void fold_short(Call& call) {
  Scratch& s = call.scratch;
  for (std::size_t i = 0; i < call.members(); ++i) s.sources[i] = i == call.me ? call.data : s.in[i].data;
  fold_ranks(call.dtype, s.sources, {&call.data, 1}, 0, call.count);
}

}  // namespace

double run_direct(Call& call) {
  Scratch& s = call.scratch;
  Transport& transport = call.transport;
  const std::size_t me = call.me, members = call.members();
  const std::int64_t ring_bytes = Stream::kWindow * call.segment;
  const std::int64_t longest = (call.count / static_cast<std::int64_t>(members) + 1) * size_of(call.dtype);
  // Short sums need no streams, and short slices none to scatter them: the first messages carry them.
  const bool all_short = call.kind == CallKind::all_reduce && call.bytes() <= FirstMessage::kInlineBytes;
  const bool slices_short = call.sums() && !all_short && longest <= FirstMessage::kInlineBytes;
  const bool scatters = call.sums() && !all_short && !slices_short, gathers = call.gathers() && !all_short;
  if (scatters) s.reserve_ring(static_cast<std::int64_t>(members) * ring_bytes);

  const auto mine = [&](std::size_t step) { return (me + step) % members; };  // next first, so not all to one
  for (std::size_t step = 1; step < members; ++step) {
    const std::size_t i = mine(step);
    const auto scatter = call.route(i, Part::scatter), gather = call.route(i, Part::gather);
    std::byte *const theirs = call.data + call.begin(i), *const own = call.data + call.begin(me);
    call.receive_first(i, scatter);
    if (slices_short)
      call.send_first(i, scatter, theirs, call.slice_bytes(i));
    else
      call.send_first(i, scatter, call.data, all_short ? call.bytes() : 0);
    std::byte* const ring = scatters ? s.ring.data() + static_cast<std::int64_t>(i) * ring_bytes : nullptr;
    s.streams.emplace_back(scatter, true, theirs, scatters ? call.slice_bytes(i) : 0, call.segment);
    s.streams.emplace_back(scatter, false, ring, scatters ? call.slice_bytes(me) : 0, call.segment, true);
    s.streams.emplace_back(gather, true, own, gathers ? call.slice_bytes(me) : 0, call.segment);
    s.streams.emplace_back(gather, false, theirs, gathers ? call.slice_bytes(i) : 0, call.segment);
  }
  const auto peer = [&](std::size_t step) {
    Stream* const first = &s.streams[kStreams * (step - 1)];
    return Peer{first, first + 1, first + 2, first + 3};
  };
  const bool sums = call.sums() && !all_short;
  const Stream own({}, false, call.data + call.begin(me), sums ? call.slice_bytes(me) : 0, call.segment);
  const auto fold_segment = [&](std::int64_t k) {
    s.sources[me] = own.at(k);
    for (std::size_t step = 1; step < members; ++step) {
      const std::size_t i = mine(step);
      s.sources[i] = slices_short ? s.in[i].data + k * call.segment : peer(step).scatter_in->at(k);
    }
    call.fold(own.at(k), own.bytes_of(k));
  };

  double met = 0;
  std::int64_t folded = 0;
  std::size_t come = 0;  // first messages
  call.progress([&](Look& look) {
    std::int64_t arrived = own.segments();  // of the own slice, from all
    for (std::size_t step = 1; step < members; ++step) {
      const std::size_t i = mine(step);
      if (!s.come[i] && has_ended(transport, s.receives[i], look)) {
        call.check_first_message(s.in[i], call.group[i]);
        s.come[i] = true;
        if (++come == members - 1) met = steady_seconds();
      }
      has_ended(transport, s.sends[i], look);
      const Peer p = peer(step);
      p.scatter_out->advance(transport, Stream::kAll, look);
      p.scatter_in->advance(transport, s.come[i] ? folded + Stream::kWindow : 0, look);
      p.gather_out->advance(transport, sums ? folded : Stream::kAll, look);
      // Sums overwrite the operands that were sent.
      const std::int64_t sent = p.scatter_out->finished() ? Stream::kAll : p.scatter_out->ended();
      p.gather_in->advance(transport, s.come[i] ? sent : 0, look);
      if (!slices_short) arrived = std::min(arrived, p.scatter_in->ended());
    }
    if (come < members - 1) arrived = 0;
    for (; folded < arrived; ++folded) {
      fold_segment(folded);
      look.moved = true;
    }
    look.finished &= folded == own.segments();
  });
  if (all_short && call.count > 0) fold_short(call);
  return met;
}

}  // namespace tandem::engine
