#include <tandem/dist/rendezvous.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/fold.h>
#include <tandem/dist/group.h>
#include <tandem/dist/wait.h>

namespace tandem::engine {
namespace {
// Polls without the lock, so that ends can meet before the caller sleeps.
template <class Done> void poll_unlocked(std::unique_lock<std::mutex>& lock, Done done) {
  lock.unlock();
  poll_briefly(done);
  lock.lock();
}

// Up to this size the last member to arrive folds everything: waking a helper costs more than the work.
constexpr std::int64_t kAloneBytes = 32 << 10;
// A member folds this much at a time: enough to hide the cost of the claim, little enough to share evenly.
constexpr std::int64_t kChunkBytes = 64 << 10;
}  // namespace

void Mailbox::send(const void* data, std::int64_t bytes, const AbortFlag& abort) {
  End end{static_cast<std::byte*>(const_cast<void*>(data)), bytes, {}, {}};
  meet(end, sender_, receiver_, abort);
}

void Mailbox::receive(void* data, std::int64_t bytes, const AbortFlag& abort) {
  End end{static_cast<std::byte*>(data), bytes, {}, {}};
  meet(end, receiver_, sender_, abort);
}

void Mailbox::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Mailbox::meet(End& mine, End*& my_place, End*& their_place, const AbortFlag& abort) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return !my_place || abort.raised(); });  // an earlier call of this rank comes first
  abort.check();
  if (!their_place) {
    my_place = &mine;
    poll_unlocked(lock, [&] { return mine.done.load(std::memory_order_acquire); });
    changed_.wait(lock, [&] { return mine.done || (abort.raised() && my_place == &mine); });
    if (!mine.done) {
      my_place = nullptr;
      changed_.notify_all();
      abort.check();
    }
  } else {
    End& theirs = *their_place;
    their_place = nullptr;
    lock.unlock();
    const bool sending = &my_place == &sender_;
    const End &source = sending ? mine : theirs, &target = sending ? theirs : mine;
    if (source.bytes != target.bytes) {
      mine.error = fmt::format(
          "channel {}: rank {} sends {} bytes, rank {} receives {}: both ends of a transfer must agree",
          channel_, from_, source.bytes, to_, target.bytes);
    } else if (source.bytes > 0) {
      std::memcpy(target.data, source.data, static_cast<std::size_t>(source.bytes));
    }
    lock.lock();
    theirs.error = mine.error;
    theirs.done = true;
    changed_.notify_all();
  }
  lock.unlock();
  if (!mine.error.empty()) throw Error(mine.error);
}

double Meeting::all_reduce(std::span<const int> group, std::size_t index, void* data, std::int64_t count,
                           DType dtype, const AbortFlag& abort, const Help& help) {
  Member member{Kind::all_reduce, static_cast<std::byte*>(data), count, dtype, {}, nullptr, 0};
  join(group, index, member, abort, &help);
  return member.met;
}

void Meeting::barrier(std::span<const int> group, std::size_t index, const AbortFlag& abort) {
  Member member{Kind::barrier, nullptr, 0, DType::f32, {}, nullptr, 0};
  join(group, index, member, abort, nullptr);
}

void Meeting::wake() {
  const std::lock_guard lock(mutex_);
  for (const auto& round : rounds_) round->changed.notify_all();
}

void Meeting::join(std::span<const int> group, std::size_t index, Member& mine, const AbortFlag& abort,
                   const Help* help) {
  std::unique_lock lock(mutex_);
  Round& round = round_of(group);
  Member*& place = round.members[index];
  round.changed.wait(lock,
                     [&] { return !place || abort.raised(); });  // an earlier call of this rank comes first
  abort.check();
  refuse_crossed_groups(round, group[index]);
  place = &mine;
  if (++round.arrived < group.size()) {
    poll_unlocked(lock, [&] { return mine.progress.load(std::memory_order_acquire) != Progress::gathering; });
    round.changed.wait(lock, [&] { return mine.progress != Progress::gathering || abort.raised(); });
    if (mine.progress == Progress::gathering) {
      place = nullptr;
      --round.arrived;
      round.changed.notify_all();
      abort.check();
    }
  } else if (const auto error = disagreement(round)) {
    finish(round, error);
  } else {
    start(round);
  }
  if (mine.progress == Progress::working) {
    ++round.working;
    lock.unlock();
    const auto part = [&] { work(round); };
    help->workers.run(help->threads, part);
    --round.working;
    lock.lock();
    // The first member that finds all chunks folded wakes the others; no member leaves before that.
    if (round.folded_chunks.load(std::memory_order_acquire) == round.chunks &&
        mine.progress == Progress::working)
      finish(round, nullptr);
    poll_unlocked(lock, [&] { return mine.progress.load(std::memory_order_acquire) == Progress::done; });
    round.changed.wait(lock, [&] { return mine.progress == Progress::done; });
  }
  lock.unlock();
  if (mine.error) throw Error(*mine.error);
}

Meeting::Round& Meeting::round_of(std::span<const int> group) {
  for (const auto& round : rounds_)
    if (std::equal(group.begin(), group.end(), round->group.begin(), round->group.end())) return *round;
  auto& round = *rounds_.emplace_back(std::make_unique<Round>());
  round.group.assign(group.begin(), group.end());
  round.members.resize(group.size());
  round.buffers.resize(group.size());
  return round;
}

// If another rank of both groups already waits in this channel for `rank`, they would wait for each other.
void Meeting::refuse_crossed_groups(const Round& mine, int rank) const {
  for (const auto& other : rounds_) {
    if (other.get() == &mine || other->arrived == 0 || !std::ranges::binary_search(other->group, rank))
      continue;
    for (std::size_t i = 0; i < other->group.size(); ++i)
      if (other->members[i] && std::ranges::binary_search(mine.group, other->group[i]))
        throw Error(fmt::format(
            "channel {}: rank {} calls over ranks [{}] while rank {} waits for it over ranks [{}]", channel_,
            rank, join_ranks(mine.group), other->group[i], join_ranks(other->group)));
  }
}

// A message that says how the members' calls differ, or null.
std::shared_ptr<const std::string> Meeting::disagreement(const Round& round) const {
  const auto agrees = [first = round.members[0]](const Member* m) {
    return m->kind == first->kind && m->count == first->count && m->dtype == first->dtype;
  };
  if (std::ranges::all_of(round.members, agrees)) return nullptr;
  std::string calls;
  for (std::size_t i = 0; i < round.group.size(); ++i) {
    const Member& m = *round.members[i];
    calls += fmt::format("{}rank {}: {}", i ? ", " : "", round.group[i],
                         m.kind == Kind::barrier
                             ? std::string("a barrier")
                             : fmt::format("an all-reduce of {} {}", m.count, name_of(m.dtype)));
  }
  return std::make_shared<const std::string>(
      fmt::format("channel {}: the ranks of a group must make the same call, but {}", channel_, calls));
}

// All members have arrived: this one does a small sum alone; a large sum is shared.
void Meeting::start(Round& round) {
  // If a rank calls from several threads, one of them may still be leaving the previous round.
  while (round.working != 0) std::this_thread::yield();
  const Member& first = *round.members[0];
  const std::int64_t bytes = first.count * size_of(first.dtype);
  const double now = steady_seconds();
  for (Member* member : round.members) member->met = now;
  round.count = first.count;
  round.dtype = first.dtype;
  for (std::size_t i = 0; i < round.members.size(); ++i) round.buffers[i] = round.members[i]->data;
  round.chunks = bytes > kAloneBytes ? (bytes + kChunkBytes - 1) / kChunkBytes : 1;
  round.next_chunk.store(0, std::memory_order_relaxed);
  round.folded_chunks.store(0, std::memory_order_relaxed);
  if (round.chunks == 1) {
    if (first.count > 0) work(round);
    finish(round, nullptr);
    return;
  }
  for (Member* member : round.members) member->progress = Progress::working;
  round.changed.notify_all();
}

void Meeting::work(Round& round) {
  const std::int64_t chunk =
      round.chunks == 1 ? round.count : kChunkBytes / size_of(round.dtype);  // elements
  const std::span<std::byte* const> buffers(round.buffers);
  const std::span<const std::byte* const> sources(const_cast<const std::byte* const*>(buffers.data()),
                                                  buffers.size());
  for (;;) {
    const std::int64_t claimed = round.next_chunk.fetch_add(1, std::memory_order_relaxed);
    if (claimed >= round.chunks) return;
    const std::int64_t first = claimed * chunk;
    fold_ranks(round.dtype, sources, buffers, first, std::min(chunk, round.count - first));
    round.folded_chunks.fetch_add(1, std::memory_order_acq_rel);
  }
}

void Meeting::finish(Round& round, const std::shared_ptr<const std::string>& error) {
  for (Member*& member : round.members) {
    member->error = error;
    member->progress = Progress::done;
    member = nullptr;
  }
  round.arrived = 0;
  round.changed.notify_all();
}

}  // namespace tandem::engine
