#include <tandem/core/runtime/state_memory.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

void check_state(const Program& program, const StateDict& state, bool exactly) {
  const auto may_be_absent = [&](const std::string& path) {
    return !exactly && path.starts_with(kOptimizerPath);
  };
  std::set<std::string_view> known;
  for (const StateBlock& s : program.states) known.insert(s.path);
  const bool optimizes =
      std::ranges::any_of(known, [](std::string_view path) { return path.starts_with(kOptimizerPath); });
  for (const auto& [path, value] : state)
    if (!known.contains(path) && (optimizes || !may_be_absent(path)))
      throw Error(fmt::format(
          "the Program has no state '{}': no traced code uses it; remove it from the state or the model",
          path));
  for (const StateBlock& s : program.states) {
    const auto found = state.find(s.path);
    if (found == state.end()) {
      if (!may_be_absent(s.path)) throw Error(fmt::format("state '{}' is missing", s.path));
    } else if (found->second.type() != s.type) {
      throw Error(fmt::format("state '{}' is {}, the value given {}{}", s.path, to_string(s.type),
                              to_string(found->second.type()),
                              s.type.shape.size() == found->second.shape().size() + 1
                                  ? "; combine the states of several models with stack_states"
                                  : ""));
    }
  }
}

std::vector<StateMemory> states_of_device(const Program& program, int device, const RankMemory& memory) {
  std::vector<StateMemory> states;
  for (const StateBlock& s : program.states)
    if (program.block(s.block).device == device) states.push_back({s, memory.state(program, s)});
  return states;
}

void load_state(const Program& program, int device, RankMemory& memory, const StateDict& state) {
  for (const auto& [s, bytes] : states_of_device(program, device, memory))
    if (const auto found = state.find(s.path); found != state.end())
      std::memcpy(bytes.data(), found->second.data(), bytes.size());
    else
      std::ranges::fill(bytes, std::byte{0});
}

}  // namespace tandem::engine
