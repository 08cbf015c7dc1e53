#include "random_programs.h"

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/memory.h>
#include <tandem/core/schedule/accesses.h>

#include "program_builder.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

class RandomSchedule {
 public:
  explicit RandomSchedule(std::mt19937_64& rng)
      : rng_(rng), devices_(draw_bool(rng, 0.3) ? 2 : 1), b_(devices_) {}

  Program make() {
    add_lanes();
    const int instructions = draw_int(rng_, 2, 14);
    for (int i = 0; i < instructions; ++i) draft_instruction(i);
    if (devices_ == 2 && draw_bool(rng_, 0.5)) draft_barrier();
    list();
    add_states();
    if (draw_bool(rng_, 0.6)) share_in_place();
    if (draw_bool(rng_, 0.3)) join_blocks();
    add_workspaces();
    add_waits();
    for (MemoryBlock& b : b_.program().blocks) {
      if (b.arena == Arena::work && draw_bool(rng_, 0.15)) b.arena = Arena::host;
      if (b.arena != Arena::state && draw_bool(rng_, 0.1)) b.slots = draw_int(rng_, 1, 4);
    }
    for (int d = 0; d < b_.program().devices; ++d) b_.program().corun.push_back(draw_real(rng_, 0.5, 1));
    return b_.take();
  }

 private:
  // Instructions listed next to each other: one, or the ends of a transfer or barrier.
  struct Draft {
    std::vector<Instruction> instructions;
    std::vector<std::size_t> after;  // drafts of equal lag that it depends on
  };
  struct Source {
    MemberId value;
    std::size_t draft;
    int lag, device;
  };

  void add_lanes() {
    constexpr LaneKind kOthers[] = {LaneKind::compute, LaneKind::collective, LaneKind::copy_out,
                                    LaneKind::copy_in};
    lanes_.resize(at(devices_));
    for (int d = 0; d < devices_; ++d) {
      lanes_[at(d)].push_back(b_.lane(d));
      for (int more = draw_int(rng_, 0, 2); more > 0; --more)
        lanes_[at(d)].push_back(b_.lane(d, kOthers[draw_int(rng_, 0, 3)], 1));
    }
  }

  Cost draw_cost() {
    return {draw_bool(rng_, 0.2) ? 0 : draw_real(rng_, 0.1, 2), draw_real(rng_, 0.3, 1),
            draw_real(rng_, 0.3, 1)};
  }

  MemberId new_value(const std::string& name, int device, std::size_t draft, int lag, std::int64_t bytes) {
    const MemberId m = b_.value(name, device, bytes);
    sources_.push_back({m, draft, lag, device});
    return m;
  }

  // The value on that device: the value itself, or a transferred copy.
  Source on_device(Source source, int device) {
    if (source.device == device) return source;
    const int lag = source.lag + (draw_bool(rng_, 0.3) ? 1 : 0);
    const std::string name = fmt::format("{} to {}", b_.program().members[at(source.value)].name, device);
    const std::int64_t channel = b_.new_channel();
    const std::size_t draft = drafts_.size();
    Draft d;
    if (source.lag == lag) d.after.push_back(source.draft);
    const MemberId received = new_value(fmt::format("{} #{}", name, draft), device, draft, lag,
                                        b_.program().members[at(source.value)].bytes);
    const Cost cost = draw_cost();
    d.instructions.push_back({.name = fmt::format("send {} #{}", name, draft),
                              .lane = b_.lane(source.device, LaneKind::send, device),
                              .lag = lag,
                              .reads = {source.value},
                              .channel = channel,
                              .cost = cost});
    d.instructions.push_back({.name = fmt::format("receive {} #{}", name, draft),
                              .lane = b_.lane(device, LaneKind::receive, source.device),
                              .lag = lag,
                              .writes = {received},
                              .channel = channel,
                              .cost = cost});
    drafts_.push_back(std::move(d));
    return {received, draft, lag, device};
  }

  void draft_instruction(int number) {
    const int device = draw_int(rng_, 0, devices_ - 1);
    Instruction s{
        .name = fmt::format("S{}", number),
        .lane = lanes_[at(device)][at(draw_int(rng_, 0, static_cast<int>(lanes_[at(device)].size()) - 1))],
        .cost = draw_cost()};
    std::vector<Source> inputs;
    for (int i = draw_int(rng_, 0, std::min<int>(3, static_cast<int>(sources_.size()))); i > 0; --i)
      inputs.push_back(
          on_device(sources_[at(draw_int(rng_, 0, static_cast<int>(sources_.size()) - 1))], device));
    s.lag = inputs.empty() ? draw_int(rng_, 0, 2) : 0;
    for (const Source& in : inputs) s.lag = std::max(s.lag, in.lag);
    if (draw_bool(rng_, 0.3)) s.lag += draw_int(rng_, 1, 2);
    Draft d;
    for (const Source& in : inputs) {
      s.reads.push_back(in.value);
      if (in.lag == s.lag) d.after.push_back(in.draft);
    }
    const std::size_t draft = drafts_.size();
    for (int o = draw_int(rng_, 0, 2); o > 0; --o)
      s.writes.push_back(
          new_value(fmt::format("{}.{}", s.name, o), device, draft, s.lag, draw_int(rng_, 1, 5) * 40));
    if (b_.program().lanes[at(s.lane)].kind == LaneKind::collective && !s.reads.empty())
      s.channel = b_.new_channel();
    d.instructions.push_back(std::move(s));
    drafts_.push_back(std::move(d));
  }

  void draft_barrier() {
    Draft d;
    const std::int64_t channel = b_.new_channel();
    for (int device = 0; device < devices_; ++device)
      d.instructions.push_back(
          {.name = fmt::format("barrier {}", device), .lane = b_.lane(device), .lag = 1, .channel = channel});
    drafts_.push_back(std::move(d));
  }

  // A random order in which drafts follow the drafts of equal lag that they depend on.
  void list() {
    std::vector<bool> listed(drafts_.size(), false);
    for (std::size_t count = 0; count < drafts_.size(); ++count) {
      std::vector<std::size_t> ready;
      for (std::size_t d = 0; d < drafts_.size(); ++d)
        if (!listed[d] && std::all_of(drafts_[d].after.begin(), drafts_[d].after.end(),
                                      [&](std::size_t a) { return listed[a]; }))
          ready.push_back(d);
      const std::size_t chosen = ready[at(draw_int(rng_, 0, static_cast<int>(ready.size()) - 1))];
      listed[chosen] = true;
      for (Instruction& s : drafts_[chosen].instructions) b_.add(std::move(s));
    }
  }

  int device_of(InstructionId s) { return b_.program().lane_of(s).device; }
  InstructionId instructions() { return b_.program().instructions.next_id(); }
  InstructionId any_instruction() { return draw_int(rng_, 0, instructions() - 1); }
  bool is_end(InstructionId s) { return b_.instruction(s).channel >= 0; }

  void add_states() {
    for (int i = draw_int(rng_, 0, 3); i > 0; --i) {
      const int device = draw_int(rng_, 0, devices_ - 1);
      const BlockId state = b_.state(fmt::format("w{}", i), device, draw_int(rng_, 1, 4) * 40);
      const InstructionId assign = draw_bool(rng_, 0.85) ? any_instruction() : InstructionId();
      const bool assigned = assign >= 0 && device_of(assign) == device && !is_end(assign);
      if (assigned) {
        b_.instruction(assign).writes.push_back(b_.assign(state));
        b_.instruction(assign).in_place = draw_bool(rng_, 0.5);
      }
      for (int reader = draw_int(rng_, 1, 3); reader > 0; --reader) {
        const InstructionId s = draw_bool(rng_, 0.3) && assigned ? assign : any_instruction();
        if (device_of(s) != device || is_end(s)) continue;
        int youngest = 1;  // the assign must come before the read
        if (assigned)
          youngest = std::max(1, b_.instruction(assign).lag - b_.instruction(s).lag + (assign < s ? 0 : 1));
        if (s == assign) youngest = 1;
        const MemberId m = b_.read(state, youngest + (draw_bool(rng_, 0.4) ? draw_int(rng_, 1, 2) : 0));
        auto& reads = b_.instruction(s).reads;
        if (std::find(reads.begin(), reads.end(), m) == reads.end()) reads.push_back(m);
      }
    }
  }

  // Some outputs replace an input whose block has no later reader.
  void share_in_place() {
    Program& p = b_.program();
    for (InstructionId s = 0; s < instructions(); ++s) {
      Instruction& instruction = p.instructions[at(s)];
      if (instruction.channel >= 0 || instruction.reads.empty() || instruction.writes.empty() ||
          draw_bool(rng_, 0.4))
        continue;
      const MemberId in = instruction.reads[0], out = instruction.writes[0];
      if (is_state(p, in) || is_state(p, out) ||
          std::count(instruction.reads.begin(), instruction.reads.end(), in) > 1)
        continue;
      const auto accesses = accesses_by_block(p);
      const BlockId block = b_.block_of(in), own = b_.block_of(out);
      const bool last =
          std::all_of(accesses[at(block)].begin(), accesses[at(block)].end(), [&](const Access& a) {
            return a.instruction == s || earlier(a, {s, in, true, instruction.lag});
          });
      Member& result = p.members[at(out)];
      const bool alone = std::all_of(p.members.begin(), p.members.end(),
                                     [&](const Member& m) { return &m == &result || m.block != own; });
      if (!last || !alone) continue;
      const std::int64_t bytes = p.members[at(in)].bytes;
      if (std::any_of(p.instructions.begin(), p.instructions.end(),
                      [&](const Instruction& x) {  // the ends of a transfer keep their size
                        return x.channel >= 0 &&
                               std::find(x.reads.begin(), x.reads.end(), out) != x.reads.end();
                      }) &&
          bytes != result.bytes)
        continue;
      result.block = block;
      result.offset = p.members[at(in)].offset;
      result.bytes = bytes;
      instruction.in_place = true;
    }
  }

  // Joins two blocks into one, next to each other.
  void join_blocks() {
    Program& p = b_.program();
    const int blocks = static_cast<int>(p.blocks.size());
    if (blocks < 2) return;
    const BlockId a = draw_int(rng_, 0, blocks - 1), b = draw_int(rng_, 0, blocks - 1);
    if (a == b || p.blocks[at(a)].device != p.blocks[at(b)].device) return;
    if (p.blocks[at(a)].arena == Arena::state || p.blocks[at(b)].arena == Arena::state || !holds(a) ||
        !holds(b))
      return;
    const std::int64_t shift = align_up(p.blocks[at(a)].bytes);
    for (Member& m : p.members)
      if (m.block == b) {
        m.block = a;
        m.offset += shift;
      }
    p.blocks[at(a)].bytes = shift + p.blocks[at(b)].bytes;
  }

  bool holds(BlockId block) {
    const auto& members = b_.program().members;
    return std::any_of(members.begin(), members.end(), [&](const Member& m) { return m.block == block; });
  }

  void add_workspaces() {
    for (InstructionId s = 0; s < instructions(); ++s) {
      if (is_end(s) || !draw_bool(rng_, 0.15)) continue;
      const MemberId scratch = b_.value(fmt::format("{} workspace", b_.instruction(s).name), device_of(s),
                                        draw_int(rng_, 1, 4) * 64);
      b_.instruction(s).writes.push_back(scratch);
    }
  }

  void add_waits() {
    for (int i = draw_int(rng_, 0, 2); i > 0; --i) {
      const InstructionId s = any_instruction(), awaited = any_instruction();
      if (device_of(s) == device_of(awaited))
        b_.instruction(s).waits.push_back({awaited, draw_int(rng_, awaited < s ? 0 : 1, 3)});
    }
  }

  std::mt19937_64& rng_;
  int devices_;
  ProgramBuilder b_;
  std::vector<std::vector<LaneId>> lanes_;  // per device, without the lanes of transfers
  std::vector<Draft> drafts_;
  std::vector<Source> sources_;
};

}  // namespace

Program random_schedule(std::mt19937_64& rng) { return RandomSchedule(rng).make(); }

}  // namespace tandem::testing
