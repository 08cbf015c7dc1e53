#include <tandem/core/schedule/program_json.h>

#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tandem::engine {
namespace {

using json = nlohmann::ordered_json;  // states and values keep their order, and with it their addresses

// Returns a name for each element: its own if no other element that is written and no state (`uses`) has it,
// else its own with "#id". The entries of elements that are not written are unused.
template <class List, class Written>
std::vector<std::string> unique_names(const List& list, std::map<std::string, int> uses, Written written) {
  for (const auto& element : list)
    if (written(element)) ++uses[element.name];
  std::vector<std::string> names;
  for (const auto& element : list)
    names.push_back(uses[element.name] == 1 ? element.name
                                            : fmt::format("{}#{}", element.name, names.size()));
  return names;
}

// Adds a member under a name that the object does not have. Its operator[] would compare all names.
void add(json& object, const std::string& name, json value) {
  if (object.is_null()) object = json::object();
  object.get_ref<json::object_t&>().json::object_t::Container::emplace_back(name, std::move(value));
}

class Writer {
 public:
  explicit Writer(const Program& p) : p_(p) {
    std::map<std::string, int> states;
    for (const MemoryBlock& b : p.blocks)
      if (b.arena == Arena::state) ++states[b.name];
    values_ = unique_names(p.members, states, [&](const Member& m) { return !in_state(m); });
    blocks_ = unique_names(p.blocks, states, [](const MemoryBlock& b) { return b.arena != Arena::state; });
    instructions_ = unique_names(p.instructions, {}, [](const Instruction&) { return true; });
  }

  json write() {
    json j{{"devices", p_.devices},
           {"replicas", p_.replicas},
           {"microbatches", p_.microbatches},
           {"corun", corun()},
           {"duplex", p_.duplex}};
    for (const Lane& l : p_.lanes)
      j["lanes"].push_back({{"device", l.device}, {"kind", name_of(l.kind)}, {"index", l.index}});
    for (const StateBlock& s : p_.states) {
      const MemoryBlock& b = p_.block(s.block);
      add(j["states"], b.name,
          {{"device", b.device},
           {"bytes", b.bytes},
           {"trained", s.trained},
           {"slots", b.slots},
           {"offsets", b.offsets}});
    }
    IdVector<BlockId, bool> holds(p_.blocks.size(), false);
    for (const Member& m : p_.members) holds[m.block] = true;
    for (std::size_t i = 0; i < p_.blocks.size(); ++i)
      if (const MemoryBlock& b = p_.blocks[i]; b.arena != Arena::state && holds[i])
        add(j["blocks"], blocks_[i],
            {{"bytes", b.bytes}, {"arena", name_of(b.arena)}, {"slots", b.slots}, {"offsets", b.offsets}});
    for (std::size_t i = 0; i < p_.members.size(); ++i)
      if (const Member& m = p_.members[i]; !in_state(m))
        add(j["values"], values_[i], {{"bytes", m.bytes}, {"block", blocks_[m.block]}, {"offset", m.offset}});
    j["instructions"] = json::array();
    for (std::size_t i = 0; i < p_.instructions.size(); ++i)
      j["instructions"].push_back(instruction(p_.instructions[i], instructions_[i]));
    return j;
  }

 private:
  // One number if the devices have the same.
  json corun() const {
    const double first = p_.corun_of(0);
    for (int d = 1; d < p_.devices; ++d)
      if (p_.corun_of(d) != first) return p_.corun;
    return first;
  }

  bool in_state(const Member& m) const { return p_.block(m.block).arena == Arena::state; }

  std::string operand(MemberId id) const {
    const Member& m = p_.members[id];
    if (!in_state(m)) return values_[id];
    const std::string& state = p_.block(m.block).name;
    return m.shift == 1 ? state : fmt::format("{}@{}", state, 1 - m.shift);
  }

  json instruction(const Instruction& s, const std::string& name) {
    json j{{"name", name},
           {"lane", s.lane},
           {"lag", s.lag},
           {"seconds", s.cost.seconds},
           {"own_rate", s.cost.own_rate},
           {"others_rate", s.cost.others_rate},
           {"phase", name_of(s.tag.phase)},
           {"in_place", s.in_place},
           {"barrier", s.barrier}};
    for (MemberId m : s.reads) j["reads"].push_back(operand(m));
    for (MemberId m : s.writes) j["writes"].push_back(operand(m));
    if (s.tag.threads > 1) j["threads"] = s.tag.threads;
    if (s.channel >= 0)
      j["channel"] =
          std::to_string(channels_.emplace(s.channel, static_cast<int>(channels_.size())).first->second);
    for (const Wait& w : s.waits)
      j["waits"].push_back({{"instruction", instructions_[w.instruction]}, {"back", w.back}});
    return j;
  }

  const Program& p_;
  std::vector<std::string> values_, blocks_, instructions_;
  std::map<std::int64_t, int> channels_;  // numbered as they appear
};

}  // namespace

std::string to_json(const Program& p) { return Writer(p).write().dump(1); }

}  // namespace tandem::engine
