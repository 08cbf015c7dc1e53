#include <tandem/dist/measured_backward.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/units.h>
#include <tandem/core/schedule/accesses.h>
#include <tandem/dist/median.h>
#include <tandem/ops/collective.h>

namespace tandem::engine {
namespace {

// The last instruction before `reader` that makes what it reads as `member`.
InstructionId maker_of(const Program& p, InstructionId reader, MemberId member) {
  auto maker = static_cast<int>(reader);
  const auto makes = [&](MemberId m) { return overlap(p.member(m), p.member(member)); };
  do --maker;
  while (maker >= 0 && std::ranges::none_of(p.instruction(maker).writes, makes));
  return maker;
}

// The instructions that make the gradients, in the order of the device's all-reduce of all of them.
std::vector<InstructionId> makers_of_gradients(const Program& p, std::size_t gradients, int device) {
  const auto all_reduce = std::ranges::find_if(p.instructions, [&](const Instruction& s) {
    return p.lane(s.lane).device == device && as<AllReduceOp>(s) && s.reads.size() == gradients;
  });
  if (all_reduce == p.instructions.end())
    throw Error(fmt::format("device {} has no all-reduce of all {}", device,
                            counted(static_cast<std::int64_t>(gradients), "gradient")));
  std::vector<InstructionId> makers;
  const auto reader = static_cast<int>(all_reduce - p.instructions.begin());
  for (const MemberId gradient : all_reduce->reads) makers.push_back(maker_of(p, reader, gradient));
  return makers;
}

// Results are all-reduced too, but forward makes them.
bool reduces_gradients(const Program& p, InstructionId id) {
  const Instruction& i = p.instruction(id);
  if (!as<AllReduceOp>(i) || i.reads.empty()) return false;
  const InstructionId maker = maker_of(p, id, i.reads[0]);
  return maker >= 0 && p.instruction(maker).tag.phase == Phase::backward;
}

// What one rank did in one batch, in seconds of its own clock, which can be anything: machines differ.
struct Pass {
  std::map<InstructionId, Span> spans{};
  double forward = kNever, backward = kNever;             // when computations of forward and backward began
  std::vector<std::pair<double, double>> computations{};  // of all phases

  double beside_any(const Span& s) const {
    double seconds = 0;
    for (const auto& [from, to] : computations)
      seconds += std::max(0.0, std::min(s.end, to) - std::max(s.begin, from));
    return seconds;
  }
  static constexpr double kNever = std::numeric_limits<double>::infinity();
};
using Batch = std::map<int, Pass>;  // by rank

// The batches of which all ranks of the device have measured all instructions. Runs can repeat a batch.
std::vector<Batch> whole_batches(const Program& program, const Timeline& timeline, int device) {
  std::map<std::tuple<int, InstructionId, std::int64_t>, int> seen;
  std::map<std::pair<std::int64_t, int>, Batch> batches;  // by batch, and how often it had come before
  for (const Span& span : timeline.spans) {
    const Lane& lane = program.lane_of(span.instruction);
    if (lane.device != device) continue;
    const int before = seen[{span.rank, span.instruction, span.batch}]++;
    Pass& pass = batches[{span.batch, before}][span.rank];
    pass.spans[span.instruction] = span;
    if (lane.kind != LaneKind::compute) continue;
    pass.computations.emplace_back(span.begin, span.end);
    pass.forward = std::min(pass.forward, span.begin);
    if (program.instruction(span.instruction).tag.phase == Phase::backward)
      pass.backward = std::min(pass.backward, span.begin);
  }
  const auto instructions = static_cast<std::size_t>(std::ranges::count_if(
      program.instructions, [&](const Instruction& i) { return program.lane(i.lane).device == device; }));
  std::vector<Batch> whole;
  for (auto& [batch, ranks] : batches)
    if (std::ssize(ranks) == program.replicas &&
        std::ranges::all_of(ranks, [&](const auto& r) { return r.second.spans.size() == instructions; }))
      whole.push_back(std::move(ranks));
  return whole;
}

std::vector<Batch> some_whole_batches(const Program& program, const Timeline& timeline, int device) {
  auto whole = whole_batches(program, timeline, device);
  if (whole.empty()) throw Error(fmt::format("the timeline holds no whole batch of device {}", device));
  return whole;
}

// The device's all-reduces of gradients, and what makes these gradients.
struct Reductions {
  std::vector<InstructionId> all_reduces{};
  std::set<InstructionId> makers{};

  Reductions(const Program& program, int device) {
    for (const InstructionId id : program.instructions.ids()) {
      if (program.lane_of(id).device != device || !reduces_gradients(program, id)) continue;
      all_reduces.push_back(id);
      for (const MemberId gradient : program.instruction(id).reads)
        if (const InstructionId maker = maker_of(program, id, gradient);
            maker >= 0)  // not a timer's empty value
          makers.insert(maker);
    }
  }
  // When the last gradient was computed.
  double computed(const Pass& pass) const {
    double end = -Pass::kNever;
    for (const InstructionId maker : makers) end = std::max(end, pass.spans.at(maker).end);
    return end;
  }
};

}  // namespace

MeasuredBackward measured_backward(const Program& program, const Timeline& timeline,
                                   std::vector<GradientLayer> layers, int device) {
  const auto makers = makers_of_gradients(program, layers.size(), device);
  std::vector<std::vector<double>> taken(layers.size());  // by layer, per batch
  std::vector<double> forward, total;
  for (const Batch& ranks : some_whole_batches(program, timeline, device)) {
    double before = 0, forward_seconds = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      double there = before;
      for (const auto& [rank, pass] : ranks)
        there = std::max(there, pass.spans.at(makers[i]).end - pass.backward);
      taken[i].push_back(there - before);
      before = there;
    }
    total.push_back(before);
    for (const auto& [rank, pass] : ranks)
      forward_seconds = std::max(forward_seconds, pass.backward - pass.forward);
    forward.push_back(forward_seconds);
  }
  double sum = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) sum += layers[i].compute_ms = median(taken[i]);
  // Noise makes a time longer more often than shorter. So the median of a sum is more than the sum of
  // medians.
  const double scale = sum > 0 ? median(total) / sum : 0;
  for (GradientLayer& layer : layers) layer.compute_ms *= kMsPerSecond * scale;
  return {std::move(layers), kMsPerSecond * median(forward)};
}

std::vector<BackwardSample> measured_all_reduces(const Program& program, const Timeline& timeline,
                                                 int device) {
  const Reductions reductions(program, device);
  std::vector<BackwardSample> samples;
  for (const Batch& ranks : whole_batches(program, timeline, device)) {
    BackwardSample& sample = samples.emplace_back();
    for (const auto& [rank, pass] : ranks)
      sample.compute_ms =
          std::max(sample.compute_ms, kMsPerSecond * (reductions.computed(pass) - pass.backward));
    for (const InstructionId id : reductions.all_reduces) {
      const auto seconds = [&](const auto& rank) {
        const Span& s = rank.second.spans.at(id);
        return s.end - s.begin;
      };
      const Pass& last = std::ranges::min_element(ranks, {}, seconds)->second;  // the rank that called last
      const Span& span = last.spans.at(id);
      const double beside = last.beside_any(span), computed = reductions.computed(last);
      double bytes = 0;
      for (const TensorType& t : program.instruction(id).inputs) bytes += static_cast<double>(t.bytes());
      sample.all_reduces.push_back(
          {.threads = span.threads,
           .sent_bytes = 2.0 * (program.replicas - 1) / program.replicas * bytes,
           .beside_ms = kMsPerSecond * beside,
           .alone_ms = kMsPerSecond * std::max(0.0, span.end - span.begin - beside),
           .beside_backward_ms = kMsPerSecond * std::max(0.0, std::min(span.end, computed) -
                                                                  std::max(span.begin, last.backward))});
    }
  }
  return samples;
}

double measured_backward_ms(const Program& program, const Timeline& timeline, int device) {
  const Reductions reductions(program, device);
  std::vector<double> taken;
  for (const Batch& ranks : some_whole_batches(program, timeline, device)) {
    double seconds = 0;
    for (const auto& [rank, pass] : ranks)
      for (const InstructionId id : reductions.all_reduces)
        seconds = std::max(seconds, pass.spans.at(id).end - pass.backward);
    taken.push_back(seconds);
  }
  return kMsPerSecond * median(taken);
}

}  // namespace tandem::engine
