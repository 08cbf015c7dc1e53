#include <tandem/core/runtime/cpu_backend.h>

#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/runtime/comm.h>

namespace tandem::engine {
CpuBackend::CpuBackend(Executable& executable, CpuLanes& lanes, std::size_t spans, double origin)
    : executable_(executable), tracks_(program().lanes.size()), origin_(origin) {
  IdVector<LaneId, std::size_t> commands(tracks_.size());  // of a unit
  for (const InstructionId s : program().instructions.ids()) {
    number_.push_back(++track_of(s).per_unit);
    commands[program().lane_id(s)] += 1 + program().instruction(s).waits.size();
  }
  for (std::size_t l = 0; l < tracks_.size(); ++l) {
    if (tracks_[l].per_unit == 0) continue;
    tracks_[l].lane = &lanes.get(program().lanes[l].kind, program().lanes[l].index);
    tracks_[l].lane->reserve(commands[l]);
  }
  measure(spans);
}

void CpuBackend::measure(std::size_t spans) {
  for (Track& t : tracks_) {
    std::vector<Span>().swap(t.spans);
    if (t.lane) t.spans.reserve(spans);
    t.dropped = 0;
  }
}

void CpuBackend::begin_run() {
  running_ = true;
  for (Track& t : tracks_)
    if (t.lane) t.before = t.lane->instructions_pushed();
}

void CpuBackend::wait(LaneId lane, InstructionId instruction, std::int64_t unit) {
  if (!running_) begin_run();
  const Track& awaited = track_of(instruction);
  const std::uint64_t count =
      awaited.before + static_cast<std::uint64_t>(unit) * awaited.per_unit + number_[instruction];
  tracks_[lane].lane->push_wait(*this, *awaited.lane, count);
}

void CpuBackend::issue(InstructionId instruction, std::int64_t unit, std::int64_t batch) {
  if (!running_) begin_run();
  track_of(instruction).lane->push_instruction(*this, instruction, unit, batch);
}

void CpuBackend::flush() {
  for (const Track& t : tracks_)
    if (t.lane) t.lane->drain();
  running_ = false;
  const std::lock_guard lock(error_mutex_);
  if (error_) {
    const std::exception_ptr error = std::exchange(error_, nullptr);
    stopped_ = false;
    std::rethrow_exception(error);
  }
}

void CpuBackend::stop(std::exception_ptr why) {
  {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::move(why);
    stopped_ = true;  // under the lock: `flush` takes error and flag together
  }
  for (const Track& t : tracks_)
    if (t.lane) t.lane->wake();
}

void CpuBackend::execute(InstructionId instruction, std::int64_t unit, std::int64_t batch) {
  if (limit_ && !limit_->admits(executable_.first_batch() + batch, stopped_)) return;
  Track& track = track_of(instruction);
  track.batch.store(executable_.first_batch() + batch, std::memory_order_release);  // after instruction −1
  track.instruction.store(instruction, std::memory_order_release);
  try {
    const bool timed = track.spans.size() < track.spans.capacity();
    const double begin = timed ? steady_seconds() : 0;
    double met = origin_;
    executable_.execute(instruction, batch, &met);
    if (timed)
      track.spans.push_back({executable_.rank().rank, program().lane_id(instruction), instruction, unit,
                             executable_.first_batch() + batch, begin - origin_, steady_seconds() - origin_,
                             program().instruction(instruction).tag.threads, met - origin_});
    else if (track.spans.capacity() > 0)
      ++track.dropped;
  } catch (...) {
    const std::exception_ptr error =
        explain(instruction, executable_.first_batch() + batch, std::current_exception());
    stop(error);
    try {
      if (executable_.rank().comm) std::rethrow_exception(error);
    } catch (const std::exception& e) {
      abort_others(e.what());
    }
  }
  track.instruction.store(-1, std::memory_order_release);
}

// Ignores a failing abort: no other rank can be told of it.
void CpuBackend::abort_others(const std::string& reason) noexcept {
  try {
    executable_.rank().comm->abort(reason);
  } catch (...) {
  }
}

std::string CpuBackend::describe(InstructionId instruction, std::int64_t batch) const {
  const Instruction& s = program().instruction(instruction);
  const std::string which =
      fmt::format("{}batch {}", program().purpose.empty() ? "" : program().purpose + " ", batch);
  if (const auto* input = as<InputOp>(s)) return fmt::format("{}, input '{}'", which, input->input);
  if (const auto* result = as<ResultOp>(s)) return fmt::format("{}, result '{}'", which, result->result);
  return fmt::format("{}, instruction {}{}", which, s.name,
                     s.name.starts_with(s.tag.path) ? "" : fmt::format(" of module '{}'", s.tag.path));
}

std::vector<std::string> CpuBackend::doing() const {
  std::vector<std::string> texts;
  for (const Track& t : tracks_) {
    const InstructionId instruction = t.instruction.load(std::memory_order_acquire);
    const std::int64_t batch = t.batch.load(std::memory_order_acquire);
    if (instruction >= 0 && instruction == t.instruction.load(std::memory_order_relaxed))
      texts.push_back(describe(instruction, batch) +
                      fmt::format(", on {}", name_of(program().lane_of(instruction), program().devices)));
  }
  return texts;
}

std::exception_ptr CpuBackend::explain(InstructionId instruction, std::int64_t batch,
                                       std::exception_ptr error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Aborted& e) {
    return std::make_exception_ptr(Aborted(e.what()));
  } catch (const NonFinite&) {
    return error;
  } catch (const std::exception& e) {
    return std::make_exception_ptr(Error(
        fmt::format("rank {}, {}: {}", executable_.rank().rank, describe(instruction, batch), e.what())));
  } catch (...) {
    return std::make_exception_ptr(Error(fmt::format("rank {}, {}: an exception that is no std::exception",
                                                     executable_.rank().rank, describe(instruction, batch))));
  }
}

Timeline CpuBackend::timeline() {
  Timeline t = empty_timeline(program());
  for (Track& track : tracks_) {
    t.spans.insert(t.spans.end(), track.spans.begin(), track.spans.end());
    track.spans.clear();
    t.dropped += std::exchange(track.dropped, 0);
  }
  return t;
}

}  // namespace tandem::engine
