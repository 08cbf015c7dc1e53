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

bool fits_first_message(std::int64_t bytes) { return bytes <= FirstMessage::kInlineBytes; }

// One call, on one member.
class Direct {
 public:
  explicit Direct(Call& call)
      : call_(call),
        all_short_(call.kind == CallKind::all_reduce && fits_first_message(call.bytes())),
        sums_(call.sums() && !all_short_),
        slices_short_(sums_ && fits_first_message(longest_slice())),
        own_({}, false, call.data + call.begin(call.me), sums_ ? call.slice_bytes(call.me) : 0,
             call.segment) {
    if (scatters()) call.scratch.reserve_ring(static_cast<std::int64_t>(call.members()) * ring_bytes());
    for (std::size_t step = 1; step < call.members(); ++step) open(step);
  }

  // Returns when all members had called.
  double run() {
    const std::size_t others = call_.members() - 1;
    call_.progress([&](Look& look) {
      std::int64_t arrived = own_.segments();  // of the own slice, from all
      for (std::size_t step = 1; step <= others; ++step) arrived = std::min(arrived, advance(step, look));
      if (come_ < others) arrived = 0;
      for (; folded_ < arrived; ++folded_) {
        fold_segment(folded_);
        look.moved = true;
      }
      look.finished &= folded_ == own_.segments();
    });
    if (all_short_ && call_.count > 0) fold_short();
    return met_;
  }

 private:
  // Short sums need no streams, and short slices none to scatter them: the first messages carry them.
  bool scatters() const { return sums_ && !slices_short_; }
  bool gathers() const { return call_.gathers() && !all_short_; }
  std::int64_t longest_slice() const {
    return (call_.count / static_cast<std::int64_t>(call_.members()) + 1) * size_of(call_.dtype);
  }
  std::int64_t ring_bytes() const { return Stream::kWindow * call_.segment; }
  // The next one first, so not all send to one.
  std::size_t member(std::size_t step) const { return (call_.me + step) % call_.members(); }
  Peer peer(std::size_t step) const {
    Stream* const first = &call_.scratch.streams[kStreams * (step - 1)];
    return {first, first + 1, first + 2, first + 3};
  }

  // Begins the first messages with a member, and makes the streams.
  void open(std::size_t step) {
    Scratch& s = call_.scratch;
    const std::size_t i = member(step), me = call_.me;
    const auto scatter = call_.route(i, Part::scatter), gather = call_.route(i, Part::gather);
    std::byte *const theirs = call_.data + call_.begin(i), *const own = call_.data + call_.begin(me);
    call_.receive_first(i, scatter);
    if (slices_short_)
      call_.send_first(i, scatter, theirs, call_.slice_bytes(i));
    else
      call_.send_first(i, scatter, call_.data, all_short_ ? call_.bytes() : 0);
    std::byte* const ring =
        scatters() ? s.ring.data() + static_cast<std::int64_t>(i) * ring_bytes() : nullptr;
    const std::int64_t my_bytes = call_.slice_bytes(me), their_bytes = call_.slice_bytes(i);
    s.streams.emplace_back(scatter, true, theirs, scatters() ? their_bytes : 0, call_.segment);
    s.streams.emplace_back(scatter, false, ring, scatters() ? my_bytes : 0, call_.segment, true);
    s.streams.emplace_back(gather, true, own, gathers() ? my_bytes : 0, call_.segment);
    s.streams.emplace_back(gather, false, theirs, gathers() ? their_bytes : 0, call_.segment);
  }

  // Moves the messages with a member. Returns how many segments of the own slice have arrived from it.
  std::int64_t advance(std::size_t step, Look& look) {
    Scratch& s = call_.scratch;
    Transport& transport = call_.transport;
    const std::size_t i = member(step);
    if (!s.come[i] && has_ended(transport, s.receives[i], look)) {
      call_.check_first_message(s.in[i], call_.group[i]);
      s.come[i] = true;
      if (++come_ == call_.members() - 1) met_ = steady_seconds();
    }
    has_ended(transport, s.sends[i], look);
    const Peer p = peer(step);
    p.scatter_out->advance(transport, Stream::kAll, look);
    p.scatter_in->advance(transport, s.come[i] ? folded_ + Stream::kWindow : 0, look);
    p.gather_out->advance(transport, sums_ ? folded_ : Stream::kAll, look);
    // Sums overwrite the operands that were sent.
    const std::int64_t sent = p.scatter_out->finished() ? Stream::kAll : p.scatter_out->ended();
    p.gather_in->advance(transport, s.come[i] ? sent : 0, look);
    return slices_short_ ? own_.segments() : p.scatter_in->ended();
  }

  void fold_segment(std::int64_t k) {
    Scratch& s = call_.scratch;
    s.sources[call_.me] = own_.at(k);
    for (std::size_t step = 1; step < call_.members(); ++step) {
      const std::size_t i = member(step);
      s.sources[i] = slices_short_ ? s.in[i].data + k * call_.segment : peer(step).scatter_in->at(k);
    }
    call_.fold(own_.at(k), own_.bytes_of(k));
  }
  void fold_short() {
    Scratch& s = call_.scratch;
    for (std::size_t i = 0; i < call_.members(); ++i)
      s.sources[i] = i == call_.me ? call_.data : s.in[i].data;
    fold_ranks(call_.dtype, s.sources, {&call_.data, 1}, 0, call_.count);
  }

  Call& call_;
  const bool all_short_, sums_, slices_short_;
  const Stream own_;
  double met_ = 0;
  std::int64_t folded_ = 0;  // segments of the own slice
  std::size_t come_ = 0;     // first messages
};

}  // namespace

double run_direct(Call& call) { return Direct(call).run(); }

}  // namespace tandem::engine
