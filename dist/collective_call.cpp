#include <tandem/dist/collective_call.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <tuple>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/fold.h>

namespace tandem::engine {
namespace {

std::string describe(const FirstMessage& m, bool sending) {
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
  if (in.size() < peers) in.resize(peers);
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

void Call::write_first_message(std::int64_t segment, std::int64_t inline_bytes) {
  FirstMessage& mine = scratch.out;
  mine.channel = channel, mine.count = count, mine.segment = segment;
  mine.kind = kind, mine.dtype = dtype, mine.root = static_cast<std::int32_t>(root);
  if (inline_bytes > 0) std::memcpy(mine.data, data, static_cast<std::size_t>(inline_bytes));
}

void Call::check_first_message(const FirstMessage& theirs, int peer) const {
  const FirstMessage& mine = scratch.out;
  const auto said = [](const FirstMessage& m) {
    return std::tuple(m.channel, m.count, m.kind, m.dtype, m.root);
  };
  if (said(mine) == said(theirs)) {
    if (mine.segment == theirs.segment) return;
    throw Error(fmt::format(
        "channel {}: rank {} cuts {} bytes into segments of {}, but rank {} of {}: all ranks need "
        "the same CommOptions",
        channel, transport.rank(), bytes(), mine.segment, peer, theirs.segment));
  }
  throw Error(
      fmt::format("channel {}: rank {} {}, but rank {} {}{}: the ends of a channel must make the same call",
                  channel, transport.rank(), describe(mine, false), peer, describe(theirs, true),
                  mine.channel == theirs.channel ? "" : fmt::format(" in channel {}", theirs.channel)));
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
