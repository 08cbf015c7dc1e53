#include <tandem/core/runtime/cpu_lanes.h>

#include <new>
#include <optional>

#include <tandem/core/base/core_watch.h>
#include <tandem/core/base/team.h>

namespace tandem::engine {
namespace {
constexpr std::size_t kQueue = 4096;  // commands: the smallest size of a queue
constexpr std::size_t kReports = 8;   // times per round of the ring that a lane reports what it has taken
}  // namespace

CpuLane::CpuLane(LaneKind kind, const ShareOfCores& share)
    : kind_(kind), share_(share), queue_(kQueue), thread_([this] { work(); }) {}

CpuLane::~CpuLane() {
  closing_ = true;
  pushed_.wake();
  thread_.join();
}

void CpuLane::reserve(std::size_t commands) {
  const std::size_t needed =
      commands + commands / (kReports - 1) + kReports;  // taken commands count as full until reported
  if (needed <= queue_.size()) return;
  queue_ = std::vector<Command>(needed);
}

void CpuLane::push_instruction(Owner& owner, InstructionId instruction, std::int64_t unit,
                               std::int64_t batch) {
  ++instructions_pushed_;
  push({&owner, nullptr, unit, batch, instruction});
}

void CpuLane::push_wait(Owner& owner, const CpuLane& lane, std::uint64_t count) {
  push({&owner, &lane, static_cast<std::int64_t>(count), -1, -1});
}

void CpuLane::push(const Command& command) {
  if (next_pushed_ >= queue_.size()) taken_.wait_for(next_pushed_ - queue_.size() + 1, closing_);
  queue_[next_pushed_ % queue_.size()] = command;
  pushed_.advance_to(++next_pushed_);
}

void CpuLane::work() {
  if (kind_ == LaneKind::compute)
    stay_on(share_);
  else
    prefer_short_turns();
  std::optional<TeamSize> team;
  std::optional<CoreWatch> watch;
  int team_size = 0;
  std::uint64_t instructions = 0;
  for (std::uint64_t next = 0;; ++next) {
    pushed_.wait_for(next + 1, closing_);
    if (pushed_.value() <= next) return;  // closing
    const Command command = queue_[next % queue_.size()];
    if (const std::size_t part = queue_.size() / kReports; next % part == part - 1)
      taken_.advance_to(next + 1);
    if (const int threads = kind_ == LaneKind::compute ? command.owner->threads() : 1; threads != team_size) {
      watch.reset();
      team.reset();
      team.emplace(team_size = threads);
      if (kind_ == LaneKind::compute) try {
          watch.emplace(threads_of_team());
        } catch (const std::bad_alloc&) {  // goes on without
        }
    }
    if (command.awaited) {
      command.awaited->done_.wait_for(static_cast<std::uint64_t>(command.unit), command.owner->stopped());
      continue;
    }
    if (command.batch >= 0 && !command.owner->stopped().load(std::memory_order_relaxed))
      command.owner->execute(command.instruction, command.unit, command.batch);
    done_.advance_to(++instructions);
  }
}

CpuLane& CpuLanes::get(LaneKind kind, int index) {
  auto& lane = lanes_[{kind, index}];
  if (!lane) lane = std::make_unique<CpuLane>(kind, share_);
  return *lane;
}

}  // namespace tandem::engine
