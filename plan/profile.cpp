#include <tandem/plan/profile.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/error.h>
#include <tandem/core/graph_ops.h>
#include <tandem/core/memory.h>
#include <tandem/core/team.h>

namespace tandem {
namespace {

constexpr int kRuns = 5;

std::string key_of(const Step& s, int threads) {
  return fmt::format("{} {}", threads, signature(*s.op, s.inputs));
}

bool is_measured(const Step& s, LaneKind kind) {
  if (!s.op || dynamic_cast<const Input*>(s.op.get()) || dynamic_cast<const Result*>(s.op.get()))
    return false;
  return kind == LaneKind::compute || kind == LaneKind::copy_out || kind == LaneKind::copy_in;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double measure_step(const Step& s, const KernelTable& kernels, int threads, int microbatches) {
  const TeamSize team(threads);
  const KernelPtr kernel = kernels.make({*s.op, s.inputs, s.outputs, s.tag, threads, microbatches, 0});
  std::vector<Buffer> buffers;
  std::vector<const void*> in;
  std::vector<void*> out;
  const auto buffer = [&](std::int64_t bytes) {
    buffers.emplace_back(std::max<std::int64_t>(bytes, 1));
    std::memset(buffers.back().data(), 0, static_cast<std::size_t>(bytes));
    return buffers.back().data();
  };
  for (const auto& t : s.inputs) in.push_back(buffer(t.bytes()));
  for (const auto& t : s.outputs) out.push_back(buffer(t.bytes()));
  void* const workspace = buffer(kernel->workspace());
  const RankContext alone;
  std::vector<double> runs;
  for (int i = 0; i <= kRuns; ++i) {
    const double begin = now();
    kernel->run({in.data(), out.data(), workspace, 0, &alone});
    if (i > 0) runs.push_back(now() - begin);
  }
  std::nth_element(runs.begin(), runs.begin() + kRuns / 2, runs.end());
  return runs[kRuns / 2];
}

}  // namespace

void Profile::measure(const Program& program, const KernelTable& kernels, int threads) {
  for (StepId s = 0; s < static_cast<StepId>(program.steps.size()); ++s) {
    const Step& step = program.steps[static_cast<std::size_t>(s)];
    if (!is_measured(step, program.lane_of(s).kind)) continue;
    const auto [found, fresh] = seconds_.try_emplace(key_of(step, threads), 0);
    if (fresh) found->second = measure_step(step, kernels, threads, program.microbatches);
  }
}

double Profile::seconds(const Step& step, int threads) const {
  const auto found = seconds_.find(key_of(step, threads));
  if (found == seconds_.end())
    throw Error(fmt::format("the profile does not know '{}' with {} threads",
                            signature(*step.op, step.inputs), threads));
  return found->second;
}

Profile Profile::read(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error(fmt::format("profile '{}': cannot be read", file));
  try {
    Profile p;
    nlohmann::json::parse(in).get_to(p.seconds_);
    return p;
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("profile '{}': {}", file, e.what()));
  }
}

void Profile::write(const std::string& file) const {
  std::ofstream out(file);
  out << nlohmann::json(seconds_).dump(1) << '\n';
  if (!out.flush()) throw Error(fmt::format("profile '{}': cannot be written", file));
}

Program with_costs(Program program, const Profile& profile, int threads) {
  for (StepId s = 0; s < static_cast<StepId>(program.steps.size()); ++s) {
    Step& step = program.steps[static_cast<std::size_t>(s)];
    if (is_measured(step, program.lane_of(s).kind)) step.cost.seconds = profile.seconds(step, threads);
  }
  return program;
}

}  // namespace tandem
