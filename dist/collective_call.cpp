#include <tandem/dist/collective_call.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/fold.h>

namespace tandem::engine {
namespace {

std::string describe(const CallFacts& m, bool sending) {
  const auto sum = [&] { return fmt::format("{} {}", m.count, name_of(m.dtype)); };
  switch (m.kind) {
    case CallKind::transfer: return fmt::format("{} {} bytes", sending ? "sends" : "receives", m.count);
    case CallKind::all_reduce: return fmt::format("sums {} over the ranks", sum());
    case CallKind::reduce_scatter: return fmt::format("sums and scatters {}", sum());
    case CallKind::all_gather: return fmt::format("gathers {}", sum());
    case CallKind::broadcast: return fmt::format("broadcasts {} bytes from member {}", m.count, m.root);
    case CallKind::barrier: return "enters a barrier";
  }
  return "?";
}

}  // namespace

void Scratch::fit(std::size_t peers, std::size_t most_streams) {
  if (in.size() < peers) {
    in.resize(peers);
    out.resize(peers);
  }
  sends.assign(peers, {});
  receives.assign(peers, {});
  come.assign(peers, false);
  sources.assign(peers, nullptr);
  streams.clear();
  streams.reserve(most_streams);
}

void Scratch::give_up(Transport& transport) noexcept {
  transport.cancel(receives);
  transport.cancel(sends);
  for (Stream& s : streams) transport.cancel(s.requests());
}

Scratch& ScratchPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    all_.push_back(std::make_unique<Scratch>());
    free_.reserve(all_.size());
    return *all_.back();
  }
  Scratch& scratch = *free_.back();
  free_.pop_back();
  return scratch;
}

void ScratchPool::give_back(Scratch& scratch) {
  const std::lock_guard lock(mutex_);
  free_.push_back(&scratch);
}

CallFacts Call::facts() const {
  return {channel, count, segment, kind, dtype, static_cast<std::int32_t>(root)};
}

void Call::send_first(std::size_t i, const Transport::Route& to, const std::byte* from, std::int64_t bytes) {
  FirstMessage& mine = scratch.out[i];
  mine.facts = facts();
  if (bytes > 0) std::memcpy(mine.data, from, static_cast<std::size_t>(bytes));
  scratch.sends[i] = transport.send(to, reinterpret_cast<const std::byte*>(&mine),
                                    static_cast<std::int64_t>(kHeaderBytes) + bytes);
}

void Call::receive_first(std::size_t i, const Transport::Route& from) {
  scratch.receives[i] =
      transport.receive(from, reinterpret_cast<std::byte*>(&scratch.in[i]), sizeof scratch.in[i]);
}

void Call::check_first_message(const FirstMessage& theirs, int peer) const {
  CallFacts mine = facts();
  if (mine == theirs.facts) return;
  if (mine.segment = theirs.facts.segment; mine == theirs.facts)
    throw Error(fmt::format(
        "channel {}: rank {} cuts {} bytes into segments of {}, but rank {} of {}: all ranks need "
        "the same CommOptions",
        channel, transport.rank(), bytes(), segment, peer, theirs.facts.segment));
  throw Error(fmt::format(
      "channel {}: rank {} {}, but rank {} {}{}: the ends of a channel must make the same call", channel,
      transport.rank(), describe(facts(), false), peer, describe(theirs.facts, true),
      channel == theirs.facts.channel ? "" : fmt::format(" in channel {}", theirs.facts.channel)));
}

void Call::fold(std::byte* sums, std::int64_t bytes) const {
  constexpr std::int64_t kPiece = 16 << 10;  // elements
  const std::int64_t elements = bytes / size_of(dtype);
  std::atomic<std::int64_t> next{0};
  const auto part = [&] {
    for (std::int64_t first; (first = next.fetch_add(kPiece, std::memory_order_relaxed)) < elements;)
      fold_ranks(dtype, scratch.sources, {&sums, 1}, first, std::min(kPiece, elements - first));
  };
  workers.run(elements > kPiece ? threads : 1, part);
}

bool Call::all_can_ring() const {
  return std::ranges::all_of(group, [&](int p) { return transport.can_ring(p); });
}

void Call::ring_peers() const {
  for (int peer : group)
    if (peer != transport.rank()) transport.ring(peer, channel);
}

}  // namespace tandem::engine
