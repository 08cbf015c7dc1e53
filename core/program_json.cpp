#include <tandem/core/program_json.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/error.h>
#include <tandem/core/waits.h>

namespace tandem {
namespace {

// An integer that T holds, where others would be cut to fit.
template <class T> T whole(const nlohmann::ordered_json& j, const char* key, T otherwise) {
  const auto found = j.find(key);
  if (found == j.end()) return otherwise;
  const bool fits =
      found->is_number_unsigned()
          ? found->template get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<T>::max())
          : found->is_number_integer() &&
                found->template get<std::int64_t>() >= std::numeric_limits<T>::min();
  if (!fits)
    throw Error(fmt::format("Program: \"{}\": {} is no integer of sensible size", key, found->dump()));
  return found->template get<T>();
}

using json = nlohmann::ordered_json;  // states and values keep their order, and with it their addresses
constexpr std::int64_t kDefaultBytes = 64;
constexpr std::array<LaneKind, 6> kKinds{LaneKind::compute, LaneKind::collective, LaneKind::send,
                                         LaneKind::receive, LaneKind::copy_out,   LaneKind::copy_in};

LaneKind kind_from_name(const std::string& name) {
  std::string known;
  for (LaneKind k : kKinds) {
    if (name_of(k) == name) return k;
    known += (known.empty() ? "" : ", ") + std::string(name_of(k));
  }
  throw Error(fmt::format("Program: unknown lane kind '{}'; there are: {}", name, known));
}

Arena arena_from_name(const std::string& name) {
  for (Arena a : {Arena::work, Arena::host})
    if (name_of(a) == name) return a;
  throw Error(fmt::format("Program: a block's arena is work or host, not '{}'", name));
}

Phase phase_from_name(const std::string& name) {
  for (Phase p : {Phase::forward, Phase::backward, Phase::update, Phase::barrier})
    if (name_of(p) == name) return p;
  throw Error(fmt::format("Program: unknown phase '{}'; there are: forward, backward, update", name));
}

void only_keys(const json& object, const std::string& where, const std::set<std::string>& known) {
  if (!object.is_object()) throw Error(fmt::format("Program: {} must be an object", where));
  for (const auto& [key, value] : object.items())
    if (!known.contains(key)) throw Error(fmt::format("Program: {}: unknown key '{}'", where, key));
}

// A named part of the top level: found by name, and kept in the order given.
class Section {
 public:
  Section(const json& top, const char* name) {
    const auto found = top.find(name);
    if (found == top.end()) return;
    if (!found->is_object()) throw Error(fmt::format("Program: {} must be an object", name));
    for (const auto& [key, entry] : found->items()) {
      order_.push_back(key);
      entries_[key] = &entry;
    }
  }
  const std::vector<std::string>& order() const { return order_; }
  bool contains(const std::string& name) const { return entries_.contains(name); }
  json get(const std::string& name, const json& otherwise) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? otherwise : *found->second;
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, const json*> entries_;
};

class Reader {
 public:
  explicit Reader(const json& j)
      : j_(j), value_section_(j, "values"), block_section_(j, "blocks"), state_section_(j, "states") {}

  Program read() {
    only_keys(
        j_, "the top level",
        {"devices", "replicas", "microbatches", "corun", "lanes", "values", "blocks", "states", "steps"});
    p_.devices = whole<int>(j_, "devices", 1);
    p_.replicas = whole<int>(j_, "replicas", 1);
    p_.microbatches = whole<int>(j_, "microbatches", 1);
    p_.corun = j_.value("corun", 1.0);
    if (p_.devices < 1 || p_.corun <= 0) throw Error("Program: devices must be ≥ 1, corun > 0");
    for (const json& lane : j_.at("lanes")) {
      only_keys(lane, "a lane", {"device", "kind", "index"});
      p_.lanes.push_back(
          {lane.value("device", 0), kind_from_name(lane.value("kind", "compute")), lane.value("index", 0)});
    }
    for (const auto& name : state_section_.order()) add_state(name, state_section_.get(name, {}));
    for (const json& step : j_.at("steps")) name_step(step);
    add_values();
    for (const json& step : j_.at("steps")) add_step(step);
    return std::move(p_);
  }

 private:
  void add_state(const std::string& name, const json& state) {
    only_keys(state, fmt::format("state '{}'", name), {"device", "bytes", "trained", "slots", "offsets"});
    const auto block = static_cast<BlockId>(p_.blocks.size());
    p_.blocks.push_back({name, state.value("device", 0), Arena::state, state.value("bytes", kDefaultBytes),
                         state.value("slots", 1)});
    StateBlock entry{.path = name, .block = block, .trained = state.value("trained", false)};
    entry.type = {DType::u8, Shape{p_.blocks.back().bytes}};
    p_.states.push_back(std::move(entry));
    states_[name] = block;
  }

  // Learns the step's name, and the device of every value that it uses.
  void name_step(const json& step) {
    const std::string name = step.at("name");
    if (!step_ids_.emplace(name, static_cast<StepId>(step_ids_.size())).second)
      throw Error(fmt::format("Program: two steps are called '{}'", name));
    const int lane = step.value("lane", 0);
    if (lane < 0 || static_cast<std::size_t>(lane) >= p_.lanes.size())
      throw Error(
          fmt::format("Program: step '{}' is on lane {}, but there are {}", name, lane, p_.lanes.size()));
    for (const char* list : {"writes", "reads"})
      for (const json& v : step.value(list, json::array()))
        devices_.emplace(v.get<std::string>(), p_.lanes[static_cast<std::size_t>(lane)].device);
  }

  // Those listed, in the order of their blocks and their own.
  void add_values() {
    std::map<std::string, std::string> first_in;  // of a block
    for (const auto& name : value_section_.order()) {
      const json v = value_section_.get(name, {});
      if (devices_.contains(name)) first_in.emplace(v.is_object() ? v.value("block", name) : name, name);
    }
    for (const auto& name : block_section_.order())
      if (const auto found = first_in.find(name); found != first_in.end()) block(name, found->second, 0);
    for (const auto& name : value_section_.order())
      if (devices_.contains(name)) value(name);
  }

  MemberId member(const std::string& name, BlockId block, std::int64_t offset, std::int64_t bytes,
                  int shift) {
    const auto [found, fresh] = members_.emplace(name, static_cast<MemberId>(p_.members.size()));
    if (fresh) p_.members.push_back({name, block, offset, bytes, shift});
    return found->second;
  }

  MemberId value(const std::string& name) {
    if (const auto found = members_.find(name); found != members_.end()) return found->second;
    const json v = value_section_.get(name, json(kDefaultBytes));
    if (!v.is_object())
      return member(name, block(name, name, v.get<std::int64_t>()), 0, v.get<std::int64_t>(), 0);
    only_keys(v, fmt::format("value '{}'", name), {"bytes", "block", "offset"});
    const std::int64_t bytes = v.value("bytes", kDefaultBytes), offset = v.value("offset", std::int64_t{0});
    return member(name, block(v.value("block", name), name, offset + bytes), offset, bytes, 0);
  }

  // The block of that name, which has room for `bytes`.
  BlockId block(const std::string& name, const std::string& value, std::int64_t bytes) {
    const auto [found, fresh] = blocks_.emplace(name, static_cast<BlockId>(p_.blocks.size()));
    if (fresh) {
      const json b = block_section_.get(name, json::object());
      only_keys(b, fmt::format("block '{}'", name), {"bytes", "arena", "slots", "offsets"});
      p_.blocks.push_back({name, devices_.at(value), arena_from_name(b.value("arena", "work")),
                           b.value("bytes", bytes), b.value("slots", 1)});
    }
    auto& size = p_.blocks[static_cast<std::size_t>(found->second)].bytes;
    size = std::max(size, bytes);
    return found->second;
  }

  std::int64_t state_bytes(BlockId block) const { return p_.blocks[static_cast<std::size_t>(block)].bytes; }

  MemberId read_of(const std::string& text) {
    if (states_.contains(text))
      throw Error(fmt::format("Program: state '{0}' is read without an age; write {0}@1", text));
    const auto at = text.rfind('@');
    if (at == std::string::npos || value_section_.contains(text)) return value(text);
    const auto state = states_.find(text.substr(0, at));
    if (state == states_.end()) throw Error(fmt::format("Program: unknown state '{}'", text.substr(0, at)));
    int age = 0;
    const char* const end = text.data() + text.size();
    if (const auto parsed = std::from_chars(text.data() + at + 1, end, age); parsed.ptr != end || age < 1)
      throw Error(fmt::format("Program: '{}': ages count from 1", text));
    return member(text, state->second, 0, state_bytes(state->second), 1 - age);
  }

  MemberId write_of(const std::string& name) {
    const auto state = states_.find(name);
    return state == states_.end() ? value(name)
                                  : member(name + "'", state->second, 0, state_bytes(state->second), 1);
  }

  std::int64_t channel(const std::string& name) {
    return channels_.emplace(name, static_cast<std::int64_t>(channels_.size())).first->second;
  }

  void add_waits(Step& s, const json& waits) {
    for (const json& w : waits) {
      only_keys(w, fmt::format("a wait of step '{}'", s.name), {"step", "back"});
      const auto found = step_ids_.find(w.at("step").get<std::string>());
      if (found == step_ids_.end())
        throw Error(fmt::format("Program: step '{}' is after unknown step {}", s.name, w.at("step").dump()));
      s.waits.push_back({found->second, whole<int>(w, "back", 0)});
    }
  }

  void add_step(const json& j) {
    Step s;
    s.name = j.at("name");
    only_keys(j, fmt::format("step '{}'", s.name),
              {"name", "lane", "lag", "seconds", "reads", "writes", "in_place", "barrier", "channel",
               "own_rate", "others_rate", "after", "waits", "phase"});
    s.lane = whole<LaneId>(j, "lane", 0);
    s.lag = whole<int>(j, "lag", 0);
    s.in_place = j.value("in_place", false);
    s.barrier = j.value("barrier", false);
    s.cost = {j.value("seconds", 0.0), j.value("own_rate", 1.0), j.value("others_rate", 1.0)};
    constexpr double kYear = 3.2e7, kLeast = 1e-9,
                     kMost = 1e9;  // what lies outside is a slip, and rounds badly
    const auto sensible = [](double rate) { return rate >= kLeast && rate <= kMost; };
    if (!(s.cost.seconds >= 0 && s.cost.seconds <= kYear) || !sensible(s.cost.own_rate) ||
        !sensible(s.cost.others_rate))
      throw Error(fmt::format("Program: step '{}': seconds must be 0 to {:g}, rates {:g} to {:g}", s.name,
                              kYear, kLeast, kMost));
    s.tag.phase = phase_from_name(j.value("phase", "forward"));
    for (const json& r : j.value("reads", json::array())) s.reads.push_back(read_of(r));
    for (const json& w : j.value("writes", json::array())) {
      s.writes.push_back(write_of(w));
      if (std::find(s.reads.begin(), s.reads.end(), s.writes.back()) != s.reads.end())
        throw Error(fmt::format("Program: cycle: step '{}' reads {}, which it makes", s.name, w.dump()));
    }
    if (j.contains("channel")) s.channel = channel(j.at("channel"));
    for (const char* list : {"after", "waits"}) add_waits(s, j.value(list, json::array()));
    p_.steps.push_back(std::move(s));
  }

  const json& j_;
  const Section value_section_, block_section_, state_section_;
  Program p_;
  std::map<std::string, StepId> step_ids_;
  std::map<std::string, BlockId> states_, blocks_;
  std::map<std::string, MemberId> members_;
  std::map<std::string, int> devices_;  // of values
  std::map<std::string, std::int64_t> channels_;
};

class Writer {
 public:
  explicit Writer(const Program& p) : p_(p) {
    std::map<std::string, int> uses;
    for (const Block& b : p.blocks)
      if (b.arena == Arena::state) ++uses[b.name];
    std::map<std::string, int> values = uses, blocks = uses, steps;
    for (const Member& m : p.members)
      if (block_of(m).arena != Arena::state) ++values[m.name];
    for (const Block& b : p.blocks)
      if (b.arena != Arena::state) ++blocks[b.name];
    for (const Step& s : p.steps) ++steps[s.name];
    const auto unique = [](std::map<std::string, int>& count, const std::string& name, std::size_t id) {
      return count[name] == 1 ? name : fmt::format("{}#{}", name, id);
    };
    for (std::size_t i = 0; i < p.members.size(); ++i)
      values_.push_back(unique(values, p.members[i].name, i));
    for (std::size_t i = 0; i < p.blocks.size(); ++i)
      blocks_.push_back(p.blocks[i].arena == Arena::state ? p.blocks[i].name
                                                          : unique(blocks, p.blocks[i].name, i));
    for (std::size_t i = 0; i < p.steps.size(); ++i) steps_.push_back(unique(steps, p.steps[i].name, i));
  }

  json write() {
    json j{{"devices", p_.devices},
           {"replicas", p_.replicas},
           {"microbatches", p_.microbatches},
           {"corun", p_.corun}};
    for (const Lane& l : p_.lanes)
      j["lanes"].push_back({{"device", l.device}, {"kind", name_of(l.kind)}, {"index", l.index}});
    for (const StateBlock& s : p_.states) {
      const Block& b = p_.blocks[static_cast<std::size_t>(s.block)];
      j["states"][b.name] = {{"device", b.device},
                             {"bytes", b.bytes},
                             {"trained", s.trained},
                             {"slots", b.slots},
                             {"offsets", b.offsets}};
    }
    std::vector<bool> holds(p_.blocks.size(), false);
    for (const Member& m : p_.members) holds[static_cast<std::size_t>(m.block)] = true;
    for (std::size_t i = 0; i < p_.blocks.size(); ++i)
      if (const Block& b = p_.blocks[i]; b.arena != Arena::state && holds[i])
        j["blocks"][blocks_[i]] = {
            {"bytes", b.bytes}, {"arena", name_of(b.arena)}, {"slots", b.slots}, {"offsets", b.offsets}};
    for (std::size_t i = 0; i < p_.members.size(); ++i)
      if (const Member& m = p_.members[i]; block_of(m).arena != Arena::state)
        j["values"][values_[i]] = {
            {"bytes", m.bytes}, {"block", blocks_[static_cast<std::size_t>(m.block)]}, {"offset", m.offset}};
    j["steps"] = json::array();
    for (std::size_t i = 0; i < p_.steps.size(); ++i) j["steps"].push_back(step(p_.steps[i], steps_[i]));
    return j;
  }

 private:
  const Block& block_of(const Member& m) const { return p_.blocks[static_cast<std::size_t>(m.block)]; }

  std::string operand(MemberId id) const {
    const Member& m = p_.members[static_cast<std::size_t>(id)];
    if (block_of(m).arena != Arena::state) return values_[static_cast<std::size_t>(id)];
    return m.shift == 1 ? block_of(m).name : fmt::format("{}@{}", block_of(m).name, 1 - m.shift);
  }

  json step(const Step& s, const std::string& name) {
    json j{{"name", name},
           {"lane", s.lane},
           {"lag", s.lag},
           {"seconds", s.cost.seconds},
           {"own_rate", s.cost.own_rate},
           {"others_rate", s.cost.others_rate},
           {"phase", name_of(s.tag.phase)},
           {"in_place", s.in_place},
           {"barrier", s.barrier}};
    for (MemberId m : s.reads)  // workspace appears among the writes only
      if (std::find(s.writes.begin(), s.writes.end(), m) == s.writes.end()) j["reads"].push_back(operand(m));
    for (MemberId m : s.writes) j["writes"].push_back(operand(m));
    if (s.channel >= 0)
      j["channel"] =
          std::to_string(channels_.emplace(s.channel, static_cast<int>(channels_.size())).first->second);
    for (const Wait& w : s.waits)
      j["waits"].push_back({{"step", steps_[static_cast<std::size_t>(w.step)]}, {"back", w.back}});
    return j;
  }

  const Program& p_;
  std::vector<std::string> values_, blocks_, steps_;
  std::map<std::int64_t, int> channels_;  // numbered as they appear
};

}  // namespace

Program schedule_from_json(const std::string& text) {
  try {
    const json j = json::parse(text);
    Program p = Reader(j).read();
    for (const Step& s : p.steps) p.max_lag = std::max(p.max_lag, s.lag);
    check_schedule(p);
    return p;
  } catch (const json::exception& e) {
    throw Error(fmt::format("Program: {}", e.what()));
  }
}

std::string to_json(const Program& p) { return Writer(p).write().dump(1); }

}  // namespace tandem
