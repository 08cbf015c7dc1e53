#include <tandem/plan/measured_stages.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <tandem/core/base/units.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/core/runtime/trial_run.h>
#include <tandem/ops/update.h>
#include <tandem/plan/build.h>

namespace tandem::engine {
namespace {

int stages_of(const Program& program) {
  int stages = 1;
  for (const Instruction& s : program.instructions) stages = std::max(stages, s.tag.stage + 1);
  return stages;
}

// The bytes that the transfers of F carry over each cut. The ends of a transfer name its stages.
void add_activations(const Program& program, std::vector<StageCost>& stages) {
  std::map<std::int64_t, const Instruction*> sends;  // by channel
  for (const InstructionId s : program.instructions.ids())
    if (program.lane_of(s).kind == LaneKind::send)
      sends[program.instruction(s).channel] = &program.instruction(s);
  for (const InstructionId s : program.instructions.ids()) {
    const Instruction& receive = program.instruction(s);
    if (program.lane_of(s).kind != LaneKind::receive || receive.tag.phase != Phase::forward) continue;
    const Instruction& send = *sends.at(receive.channel);
    for (int k = send.tag.stage; k < receive.tag.stage; ++k)
      for (const TensorType& t : send.inputs)
        stages[static_cast<std::size_t>(k)].activation_bytes += static_cast<double>(t.bytes());
  }
}

void add_weights(const Program& program, std::vector<StageCost>& stages) {
  std::map<BlockId, int> stage_of;  // that writes the block
  for (const Instruction& s : program.instructions)
    for (const MemberId m : s.writes) stage_of[program.member(m).block] = s.tag.stage;
  for (const StateBlock& state : program.states)
    if (const auto found = stage_of.find(state.block); state.trained && found != stage_of.end())
      stages[static_cast<std::size_t>(found->second)].weight_bytes += static_cast<double>(state.type.bytes());
}

}  // namespace

std::vector<KeptBlock> kept_blocks(const Program& program) {
  std::map<BlockId, KeptBlock> kept;
  for (const Instruction& s : program.instructions)
    if (s.tag.phase == Phase::forward && !as<PredictOp>(s))
      for (const MemberId m : s.writes)
        if (const MemoryBlock& block = program.block_of(m); block.arena == Arena::work)
          kept[program.member(m).block].bytes = static_cast<double>(block.bytes);
  for (const Instruction& s : program.instructions)
    if (s.tag.phase == Phase::backward)
      for (const MemberId m : s.reads)
        if (const auto found = kept.find(program.member(m).block); found != kept.end())
          found->second.stages.insert(s.tag.stage);
  std::vector<KeptBlock> blocks;
  for (auto& [id, block] : kept)
    if (!block.stages.empty()) blocks.push_back(std::move(block));
  return blocks;
}

std::vector<StageCost> stage_costs(const Program& program) {
  std::vector<StageCost> stages(static_cast<std::size_t>(stages_of(program)));
  for (const InstructionId s : program.instructions.ids()) {
    const Instruction& instruction = program.instruction(s);
    if (program.lane_of(s).kind != LaneKind::compute || instruction.tag.phase == Phase::barrier) continue;
    if (as<PredictOp>(instruction)) continue;  // by the schedule
    StageCost& stage = stages[static_cast<std::size_t>(instruction.tag.stage)];
    double& ms = instruction.tag.phase == Phase::forward    ? stage.forward_ms
                 : instruction.tag.phase == Phase::backward ? stage.backward_ms
                                                            : stage.update_ms;
    ms += instruction.cost.seconds * kMsPerSecond;
  }
  add_activations(program, stages);
  add_weights(program, stages);
  for (StageCost& stage : stages) stage.resident_bytes = 0;
  for (const KeptBlock& kept : kept_blocks(program))
    for (const int k : kept.stages) *stages[static_cast<std::size_t>(k)].resident_bytes += kept.bytes;
  return stages;
}

double measured_batch_ms(const Graph& forward, const Strategy& strategy, Host& host, const StateDict& state) {
  double seconds = 0;
  for (const double s :
       instruction_seconds(build(forward, on_one_device(strategy)), *strategy.kernels, host, state))
    seconds += s;
  return seconds * kMsPerSecond;
}

double measured_corun(const Graph& forward, const Strategy& strategy, Host& host, const StateDict& state,
                      int cores) {
  Strategy one = on_one_device(strategy);
  one.microbatches = 1;
  const PassSeconds passes = pass_seconds(build(forward, one), *strategy.kernels, host, state, cores);
  return std::clamp(passes.beside / (passes.forward + passes.backward), 0.5, 1.0);
}

}  // namespace tandem::engine
