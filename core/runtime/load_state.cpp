#include <tandem/core/runtime/load_state.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

void check_state(const Program& program, const StateDict& state, bool exactly) {
  const auto may_be_absent = [&](const std::string& path) {
    return !exactly && path.starts_with(kOptimizerPath);
  };
  const auto any = [&](auto f) { return std::any_of(program.states.begin(), program.states.end(), f); };
  const bool optimizes = any([](const StateBlock& s) { return s.path.starts_with(kOptimizerPath); });
  for (const auto& [path, value] : state)
    if (!any([&name = path](const StateBlock& s) { return s.path == name; }) &&
        (optimizes || !may_be_absent(path)))
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

void load_state(const Program& program, int stage, RankMemory& memory, const StateDict& state) {
  for (const StateBlock& s : program.states) {
    if (program.block(s.block).device != stage) continue;
    const auto bytes = memory.state(program, s);
    if (const auto found = state.find(s.path); found != state.end())
      std::memcpy(bytes.data(), found->second.data(), bytes.size());
    else
      std::memset(bytes.data(), 0, bytes.size());
  }
}

}  // namespace tandem::engine
