#include <algorithm>

#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/collective_call.h>

namespace tandem::engine {
namespace {

using Part = Transport::Part;
using Request = Transport::Request;

/// One member's part of a ring.
///
/// Two tokens, which are first messages, go ahead of the data. One goes from the first member to the last, so
/// there it says that all have called; the other goes on from the last, around the ring, and says so to the
/// rest. Data follows its token on the same route, and a member receives data only after it has checked the
/// token.
class Ring {
 public:
  explicit Ring(Call& call)
      : call_(call),
        s_(call.scratch),
        transport_(call.transport),
        me_(call.me),
        last_(call.members() - 1),
        next_((me_ + 1) % call.members()),
        previous_((me_ + last_) % call.members()),
        segment_(call.segment) {
    if (call_.sums()) add_sums();
    if (call_.kind == CallKind::all_gather) add_slices();
    if (call_.kind == CallKind::broadcast) add_chain();
    if (me_ > 0) call_.receive_first(0, call_.route(previous_, Part::scatter));
    if (me_ < last_) call_.receive_first(1, call_.route(previous_, Part::gather));
  }

  double run() {
    call_.progress([&](Look& look) {
      pass_tokens(look);
      if (call_.sums())
        pass_sums(look);
      else
        pass_slices(look);
    });
    return met_;
  }

 private:
  // --- tokens: number 0 goes from the first member to the last, number 1 from the last to the one before it

  bool has_come(std::size_t number) const { return number < come_; }

  void pass_tokens(Look& look) {
    for (std::size_t number = 0; number < 2; ++number) {
      if (number == come_ && has_ended(transport_, s_.receives[number], look)) {
        const bool from_previous = number == 0 ? me_ > 0 : me_ < last_;
        if (from_previous) call_.check_first_message(s_.in[number], call_.group[previous_]);
        ++come_;
        if (number == 0 && me_ < last_) call_.send_first(0, call_.route(next_, Part::scatter));
        if (number == 1 && next_ != last_) call_.send_first(1, call_.route(next_, Part::gather));
        if (number == 1) met_ = steady_seconds();
        look.moved = true;
      }
      has_ended(transport_, s_.sends[number], look);
    }
    look.finished &= come_ == 2;
  }

  // --- sums: the operands go from the first member to the last, the sums from the last to the one before it

  void add_sums() {
    const std::int64_t bytes = call_.bytes(), first_of_last = call_.begin(last_);
    s_.reserve_ring(Stream::kWindow * segment_);
    const auto scatter_in = call_.route(previous_, Part::scatter),
               scatter_out = call_.route(next_, Part::scatter);
    partial_in_ =
        &s_.streams.emplace_back(scatter_in, false, s_.ring.data(), me_ > 0 ? bytes : 0, segment_, true);
    partial_out_ = &s_.streams.emplace_back(scatter_out, true, call_.data, me_ < last_ ? bytes : 0, segment_);
    // A reduce-scatter's sums travel only as far as they are needed: slice i to member i.
    const bool all = call_.kind == CallKind::all_reduce;
    const auto begin = [&](std::size_t member) { return all || member == last_ ? 0 : call_.begin(member); };
    const std::int64_t end = all ? bytes : first_of_last;
    sums_begin_ = me_ < last_ ? begin(me_) : 0;
    const std::int64_t sent_begin = me_ == last_ ? begin(0) : begin(next_);
    s_.streams.emplace_back(call_.route(previous_, Part::gather), false, call_.data + sums_begin_,
                            me_ < last_ ? end - sums_begin_ : 0, segment_);
    s_.streams.emplace_back(call_.route(next_, Part::gather), true, call_.data + sent_begin,
                            next_ != last_ ? end - sent_begin : 0, segment_);
    sent_begin_ = sent_begin;
  }

  void pass_sums(Look& look) {
    Stream &sum_in = s_.streams[2], &sum_out = s_.streams[3];
    partial_in_->advance(transport_, has_come(0) ? folded_ + Stream::kWindow : 0, look);
    for (; folded_ < partial_in_->ended(); ++folded_) {
      std::byte* const own = call_.data + folded_ * segment_;
      s_.sources[0] = partial_in_->at(folded_), s_.sources[1] = own;
      call_.fold(own, partial_in_->bytes_of(folded_));
      look.moved = true;
    }
    // Only member 0 sends its own operands, which are all there.
    partial_out_->advance(transport_, !has_come(0) ? 0 : me_ == 0 ? Stream::kAll : folded_, look);
    const std::int64_t sent = partial_out_->finished() ? call_.bytes() : partial_out_->ended_bytes();
    sum_in.advance(transport_, has_come(1) ? sum_in.segments_within(sent - sums_begin_) : 0, look);
    const std::int64_t summed =
        me_ == last_ ? std::min(folded_ * segment_, call_.bytes()) : sums_begin_ + sum_in.ended_bytes();
    sum_out.advance(transport_, has_come(1) ? sum_out.segments_within(summed - sent_begin_) : 0, look);
    look.finished &= folded_ == partial_in_->segments();
  }

  // --- slices that travel on unchanged

  // The slices in the order in which they come: that of the previous member, of the one before it, and so on.
  // Each is followed by the stream that passes it on; the own slice is only sent.
  void add_slices() {
    const std::size_t members = call_.members();
    for (std::size_t step = 0; step < members; ++step) {
      const std::size_t owner = (me_ + members - step) % members;
      add_slice(owner, step > 0, owner != next_);
    }
  }
  void add_chain() { add_slice(call_.root, me_ != call_.root, next_ != call_.root); }
  void add_slice(std::size_t owner, bool comes, bool goes_on) {
    std::byte* const data = call_.data + call_.begin(owner);
    const std::int64_t bytes = call_.slice_bytes(owner);
    s_.streams.emplace_back(call_.route(previous_, Part::gather), false, data, comes ? bytes : 0, segment_);
    s_.streams.emplace_back(call_.route(next_, Part::gather), true, data, goes_on ? bytes : 0, segment_);
  }

  void pass_slices(Look& look) {
    bool earlier_come = has_come(1), earlier_gone = has_come(1);
    for (std::size_t i = 0; i < s_.streams.size(); i += 2) {
      Stream &in = s_.streams[i], &out = s_.streams[i + 1];
      in.advance(transport_, earlier_come ? Stream::kAll : 0, look);
      const bool is_here = in.segments() == 0;
      out.advance(transport_, !earlier_gone ? 0 : is_here ? Stream::kAll : in.ended(), look);
      earlier_come = earlier_come && in.finished();  // one route carries all slices, in order
      earlier_gone = earlier_gone && out.finished();
    }
  }

  Call& call_;
  Scratch& s_;
  Transport& transport_;
  const std::size_t me_, last_, next_, previous_;
  const std::int64_t segment_;
  Stream *partial_in_ = nullptr, *partial_out_ = nullptr;
  std::int64_t sums_begin_ = 0, sent_begin_ = 0;  // bytes from `data`, of the sums that come and go on
  std::int64_t folded_ = 0;
  std::size_t come_ = 0;  // tokens
  double met_ = 0;
};

}  // namespace

double run_ring(Call& call) { return Ring(call).run(); }

}  // namespace tandem::engine
