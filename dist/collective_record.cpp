#include <tandem/dist/collective_record.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/timeline.h>

namespace tandem::engine {
namespace {

constexpr std::size_t kPlaces = 64;  // more than a rank has lanes; others are made when they are needed

std::string_view name_in(const CollectiveCall& call) { return {call.name}; }

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: return "all-reduce";
    case CollectiveKind::reduce_scatter: return "reduce-scatter";
    case CollectiveKind::all_gather: return "all-gather";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::barrier: return "barrier";
    case CollectiveKind::send: return "send";
    case CollectiveKind::receive: return "receive";
  }
  return "?";
}

std::string describe(const CollectiveCall& call) {
  const std::string peer = call.kind == CollectiveKind::send      ? fmt::format("to rank {}, ", call.peer)
                           : call.kind == CollectiveKind::receive ? fmt::format("from rank {}, ", call.peer)
                                                                  : "";
  return fmt::format("{}{}{} ({}channel {}, {})",
                     call.batch >= 0 ? fmt::format("batch {}, ", call.batch) : "between two runs, ",
                     name_of(call.kind), call.name[0] ? fmt::format(" of {}", name_in(call)) : "", peer,
                     call.channel, counted(call.bytes, "byte"));
}

CollectiveRecord::CollectiveRecord() : idle_since_(steady_seconds()), places_(kPlaces), ring_(kKept) {}

// An announcement that no call followed gives way to the next of its channel.
CollectiveRecord::Place& CollectiveRecord::place_for(std::uint64_t channel) {
  Place* free = nullptr;
  for (Place& place : places_) {
    if (place.use == Use::announced && place.call.channel == channel) return place;
    if (place.use == Use::free && !free) free = &place;
  }
  if (!free) free = &places_.emplace_back();
  free->call.batch = -1;
  free->call.name[0] = '\0';
  return *free;
}

void CollectiveRecord::announce(std::uint64_t channel, std::int64_t batch, std::string_view name) {
  const std::lock_guard lock(mutex_);
  Place& place = place_for(channel);
  place.use = Use::announced;
  place.call.channel = channel;
  place.call.batch = batch;
  const std::size_t length = std::min(name.size(), sizeof place.call.name - 1);
  std::copy_n(name.data(), length, place.call.name);
  place.call.name[length] = '\0';
}

std::size_t CollectiveRecord::begin(CollectiveCall call) {
  const double now = steady_seconds();
  const std::lock_guard lock(mutex_);
  Place& place = place_for(call.channel);
  call.batch = place.call.batch;
  std::copy(std::begin(place.call.name), std::end(place.call.name), call.name);
  call.began = now;
  place = {Use::open, call};
  return static_cast<std::size_t>(&place - places_.data());
}

void CollectiveRecord::end(std::size_t place, double met) {
  const double now = steady_seconds();
  const std::lock_guard lock(mutex_);
  places_[place].use = Use::free;
  CollectiveCall& call = ring_[ended_++ % kKept];
  call = places_[place].call;
  call.met = met;
  call.ended = idle_since_ = now;
}

void CollectiveRecord::running(bool now) {
  const std::lock_guard lock(mutex_);
  running_ = now;
  idle_since_ = steady_seconds();
}

CollectiveRecord::CallState CollectiveRecord::state() const {
  const std::lock_guard lock(mutex_);
  CallState state;
  state.running = running_;
  state.since = idle_since_;
  if (ended_ > 0) state.oldest = ring_[(ended_ - 1) % kKept];
  for (const Place& place : places_) {
    if (place.use != Use::open) continue;
    if (state.open++ > 0 && place.call.began >= state.oldest.began) continue;
    state.oldest = place.call;
    state.since = place.call.began;
  }
  return state;
}

std::vector<CollectiveCall> CollectiveRecord::last(std::size_t most) const {
  std::vector<CollectiveCall> calls;
  {
    const std::lock_guard lock(mutex_);
    const auto kept = std::min<std::uint64_t>(ended_, kKept);
    for (std::uint64_t n = ended_ - kept; n < ended_; ++n) calls.push_back(ring_[n % kKept]);
    for (const Place& place : places_)
      if (place.use == Use::open) calls.push_back(place.call);
  }
  // Those under way stay, however early they began.
  std::ranges::stable_sort(calls, {},
                           [](const CollectiveCall& c) { return std::pair(c.ended == 0, c.began); });
  if (calls.size() > most) calls.erase(calls.begin(), calls.end() - static_cast<std::ptrdiff_t>(most));
  std::ranges::stable_sort(calls, {}, &CollectiveCall::began);
  return calls;
}

void write_collectives(const std::string& file, const std::vector<CollectiveCall>& calls) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (const fs::file_status status = fs::symlink_status(file, none); fs::exists(status)) {
    constexpr std::string_view kBegin = R"({"all_called":)";  // of each line, as its keys are sorted
    std::string begin(kBegin.size(), ' ');
    const bool is_own = fs::is_regular_file(status) &&
                        (fs::is_empty(file, none) ||
                         (std::ifstream(file).read(begin.data(), std::ssize(kBegin)) && begin == kBegin));
    if (!is_own) throw Error(fmt::format("'{}' exists, and no run wrote it: it stays", file));
  }
  const double since_1970 =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count() -
      steady_seconds();
  const auto time = [&](double seconds) {
    return seconds > 0 ? nlohmann::json(std::round((seconds + since_1970) * 1e6) / 1e6) : nlohmann::json();
  };
  std::ofstream out(file);
  for (const CollectiveCall& c : calls) {
    nlohmann::json j{{"kind", name_of(c.kind)}, {"channel", c.channel},   {"bytes", c.bytes},
                     {"threads", c.threads},    {"began", time(c.began)}, {"all_called", time(c.met)},
                     {"ended", time(c.ended)}};
    j["step"] = c.batch >= 0 ? nlohmann::json(c.batch) : nlohmann::json();
    j["name"] = c.name[0] ? nlohmann::json(name_in(c)) : nlohmann::json();
    if (c.peer >= 0) j["peer"] = c.peer;
    out << j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  out.flush();
  if (!out) throw Error(fmt::format("'{}' cannot be written", file));
}

}  // namespace tandem::engine
