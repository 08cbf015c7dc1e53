#include <tandem/core/schedule/program_json.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>
#include <tandem/core/base/named.h>
#include <tandem/core/schedule/waits.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kDefaultBytes = 64;
constexpr std::size_t kMostLanes = 1000;                             // the proofs cost their square
constexpr int kMostThreads = 1'000'000;                              // of a collective, on any device
constexpr double kYear = 3.2e7, kLeastRate = 1e-9, kMostRate = 1e9;  // others would round badly

// Returns the one of `values` that has this name.
template <class T>
T value_named(std::string_view name, std::initializer_list<T> values, std::string_view what) {
  std::vector<Named<T>> table;
  for (const T value : values) table.push_back({name_of(value), value});
  return row_named(name, table, what).value;
}

LaneKind kind_from_name(std::string_view name) {
  using enum LaneKind;
  return value_named(name, {compute, collective, send, receive, copy_out, copy_in, timer}, "lane kind");
}

Arena arena_from_name(std::string_view name) {
  return value_named(name, {Arena::work, Arena::host}, "arena");
}

Phase phase_from_name(std::string_view name) {
  using enum Phase;
  return value_named(name, {forward, backward, update, barrier}, "phase");
}

// A section of the top level. Its entries are found by name, and kept in the order given.
class Section {
 public:
  /// `noun` is the word for an entry in errors.
  Section(const JsonInput& section, const char* noun) {
    for (const auto& [key, entry] : section.entries()) {
      order_.push_back(key);
      entries_.emplace(key, entry.called(fmt::format("{} '{}'", noun, key)));
    }
  }
  const std::vector<std::string>& order() const { return order_; }
  const JsonInput* find(const std::string& name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, JsonInput> entries_;
};

class Reader {
 public:
  explicit Reader(const JsonInput& j)
      : j_(j),
        value_section_(j["values"], "value"),
        block_section_(j["blocks"], "block"),
        state_section_(j["states"], "state") {}

  Program read() {
    j_.require_keys({"devices", "replicas", "microbatches", "corun", "duplex", "lanes", "values", "blocks", "states",
                     "instructions", "steps"});
    p_.devices = j_["devices"].integer(1);
    p_.replicas = j_["replicas"].integer(1);
    p_.microbatches = j_["microbatches"].integer(1);
    read_corun(j_["corun"]);
    p_.duplex = j_["duplex"].flag(true);
    const std::vector<JsonInput> lanes = j_["lanes"].required().items();
    if (lanes.size() > kMostLanes)
      throw Error(fmt::format("there are {} lanes; at most {} are accepted", lanes.size(), kMostLanes));
    for (const JsonInput& lane : lanes) {
      lane.require_keys({"device", "kind", "index"});
      p_.lanes.push_back({lane["device"].integer(0), kind_from_name(lane["kind"].text("compute")),
                          lane["index"].integer(0)});
    }
    for (const auto& name : state_section_.order()) add_state(name, *state_section_.find(name));
    const std::vector<JsonInput> instructions = j_.renamed("instructions", "steps").items();
    for (const JsonInput& instruction : instructions) name_instruction(instruction);
    add_values();
    for (const JsonInput& instruction : instructions) add_instruction(instruction);
    return std::move(p_);
  }

 private:
  void read_corun(const JsonInput& corun) {
    const auto read = [&](const JsonInput& of_device) {
      p_.corun.push_back(of_device.number(1, kLeastRate, kMostRate));
    };
    if (corun.present() && !corun.is_array())
      for (int d = 0; d < p_.devices; ++d) read(corun);
    else
      std::ranges::for_each(corun.items(), read);
    if (std::ssize(p_.corun) > p_.devices)
      throw Error(fmt::format("Program: \"corun\" has {} for {}", counted(std::ssize(p_.corun), "number"),
                              counted(p_.devices, "device")));
  }

  void add_state(const std::string& name, const JsonInput& state) {
    state.require_keys({"device", "bytes", "trained", "slots", "offsets"});
    const auto block = p_.blocks.next_id();
    p_.blocks.push_back({name, state["device"].integer(0), Arena::state, bytes_of(state["bytes"]),
                         state["slots"].integer(1)});
    StateBlock entry{.path = name, .block = block, .trained = state["trained"].flag(false)};
    entry.type = {DType::u8, Shape{p_.blocks.back().bytes}};
    p_.states.push_back(std::move(entry));
    states_[name] = block;
  }

  // Learns the instruction's name, and the device of every value that it uses.
  void name_instruction(const JsonInput& instruction) {
    const std::string name = instruction["name"].required().text();
    if (!instruction_ids_.emplace(name, InstructionId(instruction_ids_.size())).second)
      throw Error(fmt::format("Program: two instructions are called '{}'", name));
    const int lane = instruction["lane"].integer(0);
    if (lane < 0 || static_cast<std::size_t>(lane) >= p_.lanes.size())
      throw Error(fmt::format("Program: instruction '{}' is on lane {}, but there are {}", name, lane,
                              p_.lanes.size()));
    for (const char* list : {"writes", "reads"})
      for (const std::string& v : instruction[list].texts()) devices_.emplace(v, p_.lanes[lane].device);
  }

  // Adds the listed blocks that are used, then the listed values, each in the order of the text.
  void add_values() {
    std::map<std::string, std::string> first_in;  // of a block
    for (const auto& name : value_section_.order()) {
      const JsonInput& v = *value_section_.find(name);
      if (devices_.contains(name)) first_in.emplace(v.is_object() ? v["block"].text(name) : name, name);
    }
    for (const auto& name : block_section_.order())
      if (const auto found = first_in.find(name); found != first_in.end()) block(name, found->second, 0);
    for (const auto& name : value_section_.order())
      if (devices_.contains(name)) value(name);
  }

  MemberId member(const std::string& name, BlockId block, std::int64_t offset, std::int64_t bytes,
                  int shift) {
    const auto [found, fresh] = members_.emplace(name, p_.members.next_id());
    if (fresh) p_.members.push_back({name, block, offset, bytes, shift});
    return found->second;
  }

  MemberId value(const std::string& name) {
    if (const auto found = members_.find(name); found != members_.end()) return found->second;
    const JsonInput* const v = value_section_.find(name);
    if (!v || !v->is_object()) {
      const std::int64_t bytes = v ? bytes_of(*v) : kDefaultBytes;
      return member(name, block(name, name, bytes), 0, bytes, 0);
    }
    v->require_keys({"bytes", "block", "offset"});
    const std::int64_t bytes = bytes_of((*v)["bytes"]), offset = bytes_of((*v)["offset"], 0);
    return member(name, block((*v)["block"].text(name), name, offset + bytes), offset, bytes, 0);
  }

  // Returns the block of that name, with room for `bytes`.
  BlockId block(const std::string& name, const std::string& value, std::int64_t bytes) {
    const JsonInput* const listed = block_section_.find(name);
    const auto [found, fresh] = blocks_.emplace(name, p_.blocks.next_id());
    if (fresh) p_.blocks.push_back({name, devices_.at(value), Arena::work, bytes});
    MemoryBlock& b = p_.block(found->second);
    if (fresh && listed) {
      listed->require_keys({"bytes", "arena", "slots", "offsets"});
      b.arena = arena_from_name((*listed)["arena"].text("work"));
      b.bytes = bytes_of((*listed)["bytes"], bytes);
      b.slots = (*listed)["slots"].integer(1);
    }
    if (bytes > b.bytes && listed && (*listed)["bytes"].present())
      throw Error(fmt::format("Program: value '{}' ends at byte {} of block '{}', which has {}", value, bytes,
                              name, b.bytes));
    b.bytes = std::max(b.bytes, bytes);
    return found->second;
  }

  static std::int64_t bytes_of(const JsonInput& j, std::int64_t otherwise = kDefaultBytes) {
    return j.integer<std::int64_t>(otherwise, 0, kMaxBytes);
  }

  MemberId read_of(const std::string& text) {
    if (states_.contains(text))
      throw Error(fmt::format("Program: state '{0}' is read without an age; write {0}@1", text));
    const auto at = text.rfind('@');
    if (at == std::string::npos || value_section_.find(text)) return value(text);
    const auto state = states_.find(text.substr(0, at));
    if (state == states_.end()) throw Error(fmt::format("Program: unknown state '{}'", text.substr(0, at)));
    int age = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + at + 1, end, age);
    if (parsed.ec != std::errc{} || parsed.ptr != end || age < 1 || age > kMaxAge)
      throw Error(fmt::format("Program: '{}': the age must be from 1 to {}", text, kMaxAge));
    return member(text, state->second, 0, p_.block(state->second).bytes, 1 - age);
  }

  MemberId write_of(const std::string& name) {
    const auto state = states_.find(name);
    if (state == states_.end()) return value(name);
    return member(name + "'", state->second, 0, p_.block(state->second).bytes, 1);
  }

  std::int64_t channel(const std::string& name) {
    return channels_.emplace(name, static_cast<std::int64_t>(channels_.size())).first->second;
  }

  void add_waits(Instruction& s, const JsonInput& waits) {
    for (const JsonInput& w : waits.items()) {
      w.require_keys({"instruction", "step", "back"});
      const std::string name = w.renamed("instruction", "step").text();
      const auto found = instruction_ids_.find(name);
      if (found == instruction_ids_.end())
        throw Error(fmt::format("Program: instruction '{}' is after unknown instruction '{}'", s.name, name));
      s.waits.push_back({found->second, w["back"].integer(0)});
    }
  }

  void add_instruction(const JsonInput& listed) {
    Instruction s;
    s.name = listed["name"].text();
    const JsonInput j = listed.called(fmt::format("instruction '{}'", s.name));
    j.require_keys({"name", "lane", "lag", "seconds", "reads", "writes", "in_place", "barrier", "channel",
                    "own_rate", "others_rate", "after", "waits", "phase", "threads"});
    s.lane = j["lane"].integer(0);
    s.lag = j["lag"].integer(0);
    s.in_place = j["in_place"].flag(false);
    s.barrier = j["barrier"].flag(false);
    s.cost.seconds = j["seconds"].number(0, 0, kYear);
    s.cost.own_rate = j["own_rate"].number(1, kLeastRate, kMostRate);
    s.cost.others_rate = j["others_rate"].number(1, kLeastRate, kMostRate);
    s.tag.phase = phase_from_name(j["phase"].text("forward"));
    s.tag.threads = j["threads"].integer(1, 1, kMostThreads);
    for (const std::string& r : j["reads"].texts()) s.reads.push_back(read_of(r));
    for (const std::string& w : j["writes"].texts()) {
      s.writes.push_back(write_of(w));
      if (contains(s.reads, s.writes.back()))
        throw Error(fmt::format("Program: cycle: instruction '{}' reads '{}', which it makes", s.name, w));
    }
    if (j["channel"].present()) s.channel = channel(j["channel"].text());
    for (const char* list : {"after", "waits"}) add_waits(s, j[list]);
    p_.instructions.push_back(std::move(s));
  }

  const JsonInput j_;
  const Section value_section_, block_section_, state_section_;
  Program p_;
  std::map<std::string, InstructionId> instruction_ids_;
  std::map<std::string, BlockId> states_, blocks_;
  std::map<std::string, MemberId> members_;
  std::map<std::string, int> devices_;  // of values
  std::map<std::string, std::int64_t> channels_;
};

}  // namespace

Program program_from_json(const std::string& text) {
  Program p = Reader(JsonInput::parse("Program", text)).read();
  for (const Instruction& s : p.instructions) p.max_lag = std::max(p.max_lag, s.lag);
  check_unplanned(p);
  return p;
}

}  // namespace tandem::engine
