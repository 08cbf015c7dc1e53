#include <tandem/dist/measured_backward.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

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

// The last instruction before `reader` that makes what it reads as `member`.
InstructionId maker_of(const Program& p, InstructionId reader, MemberId member) {
  auto maker = static_cast<int>(reader);
  const auto makes = [&](MemberId m) { return overlap(p.member(m), p.member(member)); };
  do --maker;
  while (maker >= 0 && std::ranges::none_of(p.instruction(maker).writes, makes));
  return maker;
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
  const auto reader = static_cast<int>(all_reduce - p.instructions.begin());
  for (const MemberId gradient : all_reduce->reads) makers.push_back(maker_of(p, reader, gradient));
  return makers;
}

// A batch, and how often it had been measured before: runs can repeat a batch.
using PassId = std::pair<std::int64_t, int>;
std::vector<PassId> passes_of(const Timeline& timeline) {
  std::map<std::tuple<int, InstructionId, std::int64_t>, int> seen;
  std::vector<PassId> passes;
  for (const Span& s : timeline.spans) passes.emplace_back(s.batch, seen[{s.rank, s.instruction, s.batch}]++);
  return passes;
}

// What one rank did in one batch.
struct Pass {
  double begin = std::numeric_limits<double>::infinity(), backward = begin;
  std::vector<double> made{};  // when each gradient was there; 0: not measured
};

// Results are all-reduced too, but forward makes them.
bool reduces_gradients(const Program& p, InstructionId id) {
  const Instruction& i = p.instruction(id);
  if (!as<AllReduceOp>(i) || i.reads.empty()) return false;
  const InstructionId maker = maker_of(p, id, i.reads[0]);
  return maker >= 0 && p.instruction(maker).tag.phase == Phase::backward;
}

// What one rank did in one batch: its computations, its backward pass until the last gradient, and its
// all-reduces.
struct Beside {
  std::vector<std::pair<double, double>> computations{};
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  std::map<InstructionId, Span> all_reduces{};
  std::ptrdiff_t spans = 0;

  double beside_backward(const Span& s) const {
    return std::max(0.0, std::min(s.end, end) - std::max(s.begin, begin));
  }
  double beside_any(const Span& s) const {
    double seconds = 0;
    for (const auto& [from, to] : computations)
      seconds += std::max(0.0, std::min(s.end, to) - std::max(s.begin, from));
    return seconds;
  }
};

// The batches of which all is measured, by rank.
std::vector<std::map<int, Beside>> whole_batches(const Program& program, const Timeline& timeline,
                                                 int stage) {
  std::set<InstructionId> of_gradients, makers;
  for (const InstructionId id : program.instructions.ids()) {
    if (program.lane_of(id).device != stage || !reduces_gradients(program, id)) continue;
    of_gradients.insert(id);
    for (const MemberId gradient : program.instruction(id).reads)
      makers.insert(maker_of(program, id, gradient));
  }
  const auto instructions = std::ranges::count_if(
      program.instructions, [&](const Instruction& i) { return program.lane(i.lane).device == stage; });
  const std::vector<PassId> passes = passes_of(timeline);
  std::map<PassId, std::map<int, Beside>> batches;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Span& span = timeline.spans[i];
    const Lane& lane = program.lane_of(span.instruction);
    if (lane.device != stage) continue;
    Beside& beside = batches[passes[i]][span.rank];
    ++beside.spans;
    if (of_gradients.contains(span.instruction)) beside.all_reduces[span.instruction] = span;
    if (lane.kind != LaneKind::compute) continue;
    beside.computations.emplace_back(span.begin, span.end);
    if (program.instruction(span.instruction).tag.phase == Phase::backward)
      beside.begin = std::min(beside.begin, span.begin);
    if (makers.contains(span.instruction)) beside.end = std::max(beside.end, span.end);
  }
  std::vector<std::map<int, Beside>> whole;
  for (auto& [batch, ranks] : batches) {
    const auto has_all = [&](const auto& rank) { return rank.second.spans == instructions; };
    if (std::ssize(ranks) == program.replicas && std::ranges::all_of(ranks, has_all))
      whole.push_back(std::move(ranks));
  }
  return whole;
}

}  // namespace

MeasuredBackward measured_backward(const Program& program, const Timeline& timeline,
                                   std::vector<GradientLayer> layers, int stage) {
  const auto makers = makers_of_gradients(program, layers.size(), stage);
  const std::vector<PassId> passes = passes_of(timeline);
  std::map<PassId, std::map<int, Pass>> batches;  // by rank
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const Span& span = timeline.spans[i];
    const Lane& lane = program.lane_of(span.instruction);
    if (lane.device != stage || lane.kind != LaneKind::compute) continue;
    Pass& pass = batches[passes[i]][span.rank];
    pass.made.resize(makers.size());
    pass.begin = std::min(pass.begin, span.begin);
    if (program.instruction(span.instruction).tag.phase == Phase::backward)
      pass.backward = std::min(pass.backward, span.begin);
    for (std::size_t m = 0; m < makers.size(); ++m)
      if (makers[m] == span.instruction) pass.made[m] = span.end;
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

std::vector<BackwardSample> measured_all_reduces(const Program& program, const Timeline& timeline,
                                                 int stage) {
  std::vector<BackwardSample> samples;
  for (const auto& ranks : whole_batches(program, timeline, stage)) {
    BackwardSample& sample = samples.emplace_back();
    for (const auto& [rank, beside] : ranks)
      sample.compute_ms = std::max(sample.compute_ms, kMsPerSecond * (beside.end - beside.begin));
    for (const auto& [id, any] : ranks.begin()->second.all_reduces) {
      const auto seconds = [&, all_reduce = id](const auto& rank) {
        const Span& s = rank.second.all_reduces.at(all_reduce);
        return s.end - s.begin;
      };
      const Beside& last = std::ranges::min_element(ranks, {}, seconds)->second;  // the rank that called last
      const Span& span = last.all_reduces.at(id);
      const double beside = last.beside_any(span);
      double bytes = 0;
      for (const TensorType& t : program.instruction(id).inputs) bytes += static_cast<double>(t.bytes());
      sample.all_reduces.push_back({.threads = span.threads,
                                    .sent_bytes = 2.0 * (program.replicas - 1) / program.replicas * bytes,
                                    .beside_ms = kMsPerSecond * beside,
                                    .alone_ms = kMsPerSecond * std::max(0.0, span.end - span.begin - beside),
                                    .beside_backward_ms = kMsPerSecond * last.beside_backward(span)});
    }
  }
  return samples;
}

double measured_backward_ms(const Program& program, const Timeline& timeline, int stage) {
  std::vector<double> taken;
  for (const auto& ranks : whole_batches(program, timeline, stage)) {
    double seconds = 0;
    for (const auto& [rank, beside] : ranks)
      for (const auto& [id, span] : beside.all_reduces) seconds = std::max(seconds, span.end - beside.begin);
    taken.push_back(seconds);
  }
  if (taken.empty()) throw Error(fmt::format("the timeline holds no whole batch of stage {}", stage));
  return kMsPerSecond * median(taken);
}

}  // namespace tandem::engine
