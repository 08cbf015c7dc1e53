#include <tandem/core/program_json.h>

#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/error.h>

namespace tandem {
namespace {

using nlohmann::json;
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

void only_keys(const json& object, const std::string& where, const std::set<std::string>& known) {
  if (!object.is_object()) throw Error(fmt::format("Program: {} must be an object", where));
  for (const auto& [key, value] : object.items())
    if (!known.contains(key)) throw Error(fmt::format("Program: {}: unknown key '{}'", where, key));
}

class Reader {
 public:
  explicit Reader(const json& j) : j_(j) {}

  Program read() {
    only_keys(j_, "the top level", {"devices", "replicas", "microbatches", "corun", "lanes", "values", "states", "steps", "memory"});
    p_.devices = j_.value("devices", 1);
    p_.replicas = j_.value("replicas", 1);
    p_.microbatches = j_.value("microbatches", 1);
    p_.corun = j_.value("corun", 1.0);
    if (p_.devices < 1 || p_.corun <= 0) throw Error("Program: devices must be ≥ 1, corun > 0");
    for (const json& lane : j_.at("lanes")) {
      only_keys(lane, "a lane", {"device", "kind", "index"});
      p_.lanes.push_back({lane.value("device", 0), kind_from_name(lane.value("kind", "compute")), lane.value("index", 0)});
    }
    if (j_.contains("states"))
      for (const auto& [name, state] : j_.at("states").items()) add_state(name, state);
    for (const json& step : j_.at("steps")) name_step(step);
    for (const json& step : j_.at("steps")) add_step(step);
    return std::move(p_);
  }

 private:
  void add_state(const std::string& name, const json& state) {
    only_keys(state, fmt::format("state '{}'", name), {"device", "bytes", "slots", "offsets"});
    const auto block = static_cast<BlockId>(p_.blocks.size());
    p_.blocks.push_back({name, state.value("device", 0), Arena::state, state.value("bytes", kDefaultBytes)});
    p_.states.push_back({name, {DType::u8, {p_.blocks.back().bytes}}, block});
    states_[name] = block;
  }

  void name_step(const json& step) {
    const std::string name = step.at("name");
    if (!step_ids_.emplace(name, static_cast<StepId>(step_ids_.size())).second)
      throw Error(fmt::format("Program: two steps are called '{}'", name));
  }

  std::int64_t bytes_of(const std::string& value) const {
    if (!j_.contains("values") || !j_.at("values").contains(value)) return kDefaultBytes;
    const json& v = j_.at("values").at(value);
    return v.is_object() ? v.at("bytes").get<std::int64_t>() : v.get<std::int64_t>();
  }

  MemberId member(const std::string& key, const std::string& name, BlockId block, int shift) {
    const auto [found, fresh] = members_.emplace(key, static_cast<MemberId>(p_.members.size()));
    if (fresh) p_.members.push_back({name, block, 0, p_.blocks[static_cast<std::size_t>(block)].bytes, shift});
    return found->second;
  }

  MemberId value(const std::string& name, int device) {
    if (const auto found = members_.find(name); found != members_.end()) return found->second;
    const auto block = static_cast<BlockId>(p_.blocks.size());
    p_.blocks.push_back({name, device, Arena::work, bytes_of(name)});
    return member(name, name, block, 0);
  }

  MemberId read_of(const std::string& text, int device) {
    const auto at = text.find('@');
    const std::string name = text.substr(0, at);
    const auto state = states_.find(name);
    if (at == std::string::npos) {
      if (state != states_.end()) throw Error(fmt::format("Program: state '{0}' is read without an age; write {0}@1", name));
      return value(name, device);
    }
    if (state == states_.end()) throw Error(fmt::format("Program: unknown state '{}'", name));
    const int age = std::atoi(text.c_str() + at + 1);
    if (age < 1) throw Error(fmt::format("Program: '{}': ages count from 1", text));
    return member(text, text, state->second, 1 - age);
  }

  MemberId write_of(const std::string& name, int device) {
    const auto state = states_.find(name);
    return state == states_.end() ? value(name, device) : member(name + "'", name + "'", state->second, 1);
  }

  std::int64_t channel(const std::string& name) { return channels_.emplace(name, static_cast<std::int64_t>(channels_.size())).first->second; }

  void add_step(const json& j) {
    Step s;
    s.name = j.at("name");
    only_keys(j, fmt::format("step '{}'", s.name),
              {"name", "lane", "lag", "seconds", "reads", "writes", "in_place", "channel", "own_rate", "others_rate", "after", "waits", "phase"});
    s.lane = j.value("lane", 0);
    if (s.lane < 0 || static_cast<std::size_t>(s.lane) >= p_.lanes.size())
      throw Error(fmt::format("Program: step '{}' is on lane {}, but there are {}", s.name, s.lane, p_.lanes.size()));
    const int device = p_.lanes[static_cast<std::size_t>(s.lane)].device;
    s.lag = j.value("lag", 0);
    s.in_place = j.value("in_place", false);
    s.cost = {j.value("seconds", 0.0), j.value("own_rate", 1.0), j.value("others_rate", 1.0), {}};
    if (s.cost.seconds < 0 || s.cost.own_rate <= 0 || s.cost.others_rate <= 0)
      throw Error(fmt::format("Program: step '{}': seconds must be ≥ 0 and rates > 0", s.name));
    if (const std::string phase = j.value("phase", "forward"); phase == "backward") s.tag.phase = Phase::backward;
    else if (phase == "update") s.tag.phase = Phase::update;
    for (const json& r : j.value("reads", json::array())) s.reads.push_back(read_of(r, device));
    for (const json& w : j.value("writes", json::array())) s.writes.push_back(write_of(w, device));
    if (j.contains("channel")) s.channel = channel(j.at("channel"));
    for (const json& w : j.value("after", json::array())) {
      const auto found = step_ids_.find(w.at("step").get<std::string>());
      if (found == step_ids_.end()) throw Error(fmt::format("Program: step '{}' is after unknown step {}", s.name, w.at("step").dump()));
      s.waits.push_back({found->second, w.value("back", 0)});
    }
    p_.steps.push_back(std::move(s));
  }

  const json& j_;
  Program p_;
  std::map<std::string, StepId> step_ids_;
  std::map<std::string, BlockId> states_;
  std::map<std::string, MemberId> members_;
  std::map<std::string, std::int64_t> channels_;
};

json waits_to_json(const Program& p, const std::vector<Wait>& waits) {
  json list = json::array();
  for (const Wait& w : waits) list.push_back({{"step", p.steps[static_cast<std::size_t>(w.step)].name}, {"back", w.back}});
  return list;
}

}  // namespace

Program schedule_from_json(const std::string& text) {
  try {
    return Reader(json::parse(text)).read();
  } catch (const json::exception& e) {
    throw Error(fmt::format("Program: {}", e.what()));
  }
}

std::string to_json(const Program& p) {
  json j{{"devices", p.devices}, {"replicas", p.replicas}, {"microbatches", p.microbatches}, {"corun", p.corun}};
  for (const Lane& l : p.lanes) j["lanes"].push_back({{"device", l.device}, {"kind", name_of(l.kind)}, {"index", l.index}});
  for (const StateBlock& s : p.states) {
    const Block& b = p.blocks[static_cast<std::size_t>(s.block)];
    j["states"][s.path] = {{"device", b.device}, {"bytes", b.bytes}, {"slots", b.slots}, {"offsets", b.offsets}};
  }
  const auto block_of = [&](const Member& m) -> const Block& { return p.blocks[static_cast<std::size_t>(m.block)]; };
  const auto value_name = [&](MemberId id) { return fmt::format("{}#{}", p.members[static_cast<std::size_t>(id)].name, id); };
  for (MemberId id = 0; id < static_cast<MemberId>(p.members.size()); ++id) {
    const Member& m = p.members[static_cast<std::size_t>(id)];
    const Block& b = block_of(m);
    if (b.arena != Arena::state)
      j["values"][value_name(id)] = {{"bytes", m.bytes}, {"block", m.block}, {"arena", name_of(b.arena)}, {"slots", b.slots}, {"offsets", b.offsets}};
  }
  const auto operand = [&](MemberId id) {
    const Member& m = p.members[static_cast<std::size_t>(id)];
    if (block_of(m).arena != Arena::state) return value_name(id);
    return m.shift == 1 ? block_of(m).name : fmt::format("{}@{}", block_of(m).name, 1 - m.shift);
  };
  for (const Step& s : p.steps) {
    json step{{"name", s.name}, {"lane", s.lane}, {"lag", s.lag}, {"seconds", s.cost.seconds}, {"in_place", s.in_place},
              {"own_rate", s.cost.own_rate}, {"others_rate", s.cost.others_rate}, {"phase", name_of(s.tag.phase)}};
    for (MemberId m : s.reads) step["reads"].push_back(operand(m));
    for (MemberId m : s.writes) step["writes"].push_back(operand(m));
    if (s.channel >= 0) step["channel"] = std::to_string(s.channel);
    step["waits"] = waits_to_json(p, s.waits);
    j["steps"].push_back(std::move(step));
  }
  return j.dump(1);
}

}  // namespace tandem
