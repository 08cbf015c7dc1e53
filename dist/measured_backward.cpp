#include <tandem/dist/measured_backward.h>

#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/schedule/accesses.h>
#include <tandem/ops/collective.h>

namespace tandem::engine {
namespace {

constexpr double kMsPerSecond = 1e3;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The instructions that make the gradients, in the order of the stage's all-reduce of all of them.
std::vector<InstructionId> makers_of_gradients(const Program& p, std::size_t gradients, int stage) {
  const auto all_reduce = std::ranges::find_if(p.instructions, [&](const Instruction& s) {
    return p.lane(s.lane).device == stage && as<AllReduceOp>(s) && s.reads.size() == gradients;
  });
  if (all_reduce == p.instructions.end())
    throw Error(fmt::format("stage {} has no all-reduce of all {}", stage,
                            counted(static_cast<std::int64_t>(gradients), "gradient")));
  std::vector<InstructionId> makers;
  for (const MemberId gradient : all_reduce->reads) {
    auto maker = static_cast<int>(all_reduce - p.instructions.begin());
    const auto makes = [&](MemberId m) { return overlap(p.member(m), p.member(gradient)); };
    do --maker;
    while (maker >= 0 && std::ranges::none_of(p.instruction(maker).writes, makes));
    makers.emplace_back(maker);
  }
  return makers;
}

// What one rank did in one batch.
struct Pass {
  double begin = std::numeric_limits<double>::infinity(), backward = begin;
  std::vector<double> made{};  // when each gradient was there; 0: not measured
};

}  // namespace

MeasuredBackward measured_backward(const Program& program, const Timeline& timeline,
                                   std::vector<GradientLayer> layers, int stage) {
  const auto makers = makers_of_gradients(program, layers.size(), stage);
  std::map<std::int64_t, std::map<int, Pass>> batches;  // by batch and rank
  for (const Span& span : timeline.spans) {
    const Lane& lane = program.lane_of(span.instruction);
    if (lane.device != stage || lane.kind != LaneKind::compute) continue;
    Pass& pass = batches[span.batch][span.rank];
    pass.made.resize(makers.size());
    pass.begin = std::min(pass.begin, span.begin);
    if (program.instruction(span.instruction).tag.phase == Phase::backward)
      pass.backward = std::min(pass.backward, span.begin);
    for (std::size_t i = 0; i < makers.size(); ++i)
      if (makers[i] == span.instruction) pass.made[i] = span.end;
  }

  std::vector<std::vector<double>> taken(layers.size());  // by layer, per batch
  std::vector<double> forward;
  for (const auto& [batch, ranks] : batches) {
    const auto whole = [](const auto& rank) { return std::ranges::min(rank.second.made) > 0; };
    if (!std::ranges::all_of(ranks, whole)) continue;
    double before = 0, forward_seconds = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      double there = before;
      for (const auto& [rank, pass] : ranks) there = std::max(there, pass.made[i] - pass.backward);
      taken[i].push_back(there - before);
      before = there;
    }
    for (const auto& [rank, pass] : ranks)
      forward_seconds = std::max(forward_seconds, pass.backward - pass.begin);
    forward.push_back(forward_seconds);
  }
  if (forward.empty()) throw Error(fmt::format("the timeline holds no whole batch of stage {}", stage));
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].compute_ms = kMsPerSecond * median(taken[i]);
  return {std::move(layers), kMsPerSecond * median(forward)};
}

}  // namespace tandem::engine
