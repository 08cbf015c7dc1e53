#include <tandem/core/graph/tag.h>

#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/rng.h>

namespace tandem::engine {
namespace {

template <class T> Tag with(Tag tag, T Tag::*member, T value) {
  tag.*member = std::move(value);
  return tag;
}

}  // namespace

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::update: return "update";
    case Phase::barrier: return "barrier";
  }
  return "?";
}

Tag Tag::in_phase(Phase other) const { return with(at({}), &Tag::phase, other); }
Tag Tag::named(std::string other) const { return with(at({}), &Tag::path, std::move(other)); }
Tag Tag::on_stage(int other, int its_device) const {
  return with(with(*this, &Tag::stage, other), &Tag::device, its_device);
}
Tag Tag::of_microbatch(int other) const { return with(*this, &Tag::microbatch, other); }
Tag Tag::of_array(int other) const { return with(*this, &Tag::array, other); }
Tag Tag::on_channel(std::int64_t other) const { return with(at({}).by_threads(1), &Tag::channel, other); }
Tag Tag::by_threads(int other) const { return with(*this, &Tag::threads, other); }
Tag Tag::at(Position other) const { return with(*this, &Tag::position, other); }
Tag Tag::without_rng() const { return with(at({}), &Tag::rng_id, std::uint64_t{0}); }
Tag Tag::timed(int other_lag, int other_lane) const {
  return with(with(*this, &Tag::lag, other_lag), &Tag::lane, other_lane);
}

Tag tag_of(Phase phase, std::string path, int stage, int device) {
  return {phase, std::move(path), stage, device};
}

std::uint64_t rng_id(std::string_view path, int call) { return fnv1a(fmt::format("{}#{}", path, call)); }

bool in_module(std::string_view path, std::string_view module) {
  return path == module ||
         (path.size() > module.size() && path.starts_with(module) && path[module.size()] == '.');
}

bool same_place(const Tag& a, const Tag& b) {
  return a.stage == b.stage && a.lag == b.lag && a.lane == b.lane && a.phase == b.phase &&
         a.microbatch == b.microbatch && a.array == b.array && a.channel == b.channel &&
         a.position == b.position;
}

}  // namespace tandem::engine
