#include <tandem/core/runtime/profile.h>

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>
#include <tandem/core/base/machine.h>
#include <tandem/core/runtime/trial_run.h>

namespace tandem::engine {
namespace {

constexpr const char* kMachine = "machine";

std::string key_of(const Instruction& s, int threads) {
  std::string key = fmt::format("{} {}", threads, signature(*s.op, s.inputs));
  if (s.inputs.empty())  // then the outputs tell its size
    for (const TensorType& t : s.outputs) key += fmt::format(" {}", to_string(t));
  return key;
}

bool is_measured(const Instruction& s, LaneKind kind) {
  // The receiving end of a transfer makes the copy.
  return s.op && kind != LaneKind::collective && kind != LaneKind::send;
}

}  // namespace

void Profile::measure(const Program& program, const KernelTable& kernels, Host& host,
                      const StateDict& state) {
  take(program, instruction_seconds(program, kernels, host, state));
}

void Profile::take(const Program& program, const IdVector<InstructionId, double>& seconds) {
  std::map<std::string, std::pair<double, int>> sums;
  for (const InstructionId s : program.instructions.ids()) {
    const Instruction& instruction = program.instruction(s);
    if (!is_measured(instruction, program.lane_of(s).kind)) continue;
    auto& [sum, count] = sums[key_of(instruction, program.threads)];
    sum += seconds[s];
    ++count;
  }
  for (const auto& [key, of] : sums) seconds_[key] = of.first / of.second;
  machine_ = machine_name();
}

void Profile::add(const Profile& other) {
  for (const auto& [key, seconds] : other.seconds_) seconds_[key] = seconds;
  if (machine_.empty()) machine_ = other.machine_;
}

std::optional<double> Profile::find(const Instruction& instruction, int threads) const {
  const auto found = seconds_.find(key_of(instruction, threads));
  return found == seconds_.end() ? std::nullopt : std::optional(found->second);
}

double Profile::seconds(const Instruction& instruction, int threads) const {
  const auto found = find(instruction, threads);
  if (!found)
    throw Error(fmt::format(
        "{} is of another network, batch, strategy or number of threads: it has no time of '{}' with "
        "{}; leave it out, and this run is measured",
        what_, instruction.name, counted(threads, "thread")));
  return *found;
}

Profile Profile::parse(const std::string& what, const std::string& json) {
  constexpr double kYear = 3.2e7;
  Profile p;
  p.what_ = what;
  const JsonInput j = JsonInput::parse(what, json);
  for (const char* other : {"stages", "layers", "graphs"})
    if (j[other].present())
      throw Error(fmt::format("{} is of {}; here it must be of kernels: profile.json of a run", what, other));
  for (const auto& [key, value] : j.entries())
    if (key == kMachine)
      p.machine_ = value.text();
    else
      p.seconds_[key] = value.number(0, 0, kYear);
  return p;
}

Profile Profile::read(const std::string& file) {
  return parse(fmt::format("profile '{}'", file), read_text("profile", file));
}

std::string Profile::to_json() const {
  nlohmann::json j = seconds_;
  if (!machine_.empty()) j[kMachine] = machine_;
  return j.dump(1) + "\n";
}

void Profile::write(const std::string& file) const {
  std::ofstream out(file);
  out << to_json();
  if (!out.flush()) throw Error(fmt::format("profile '{}': cannot be written", file));
}

Program with_costs(Program program, const Profile& profile) {
  for (const InstructionId s : program.instructions.ids()) {
    Instruction& instruction = program.instruction(s);
    const LaneKind kind = program.lane_of(s).kind;
    if (!is_measured(instruction, kind)) continue;
    const double least = kind == LaneKind::compute ? 0 : instruction.cost.seconds;
    instruction.cost.seconds = std::max(least, profile.seconds(instruction, program.threads));
  }
  return program;
}

}  // namespace tandem::engine
