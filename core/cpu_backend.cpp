#include <tandem/core/cpu_backend.h>

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/comm.h>
#include <tandem/core/error.h>
#include <tandem/core/team.h>

namespace tandem {
namespace {
constexpr std::size_t kRing = 4096;  // commands; a power of two

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace

CpuBackend::CpuBackend(Executable& executable, std::size_t spans)
    : executable_(executable),
      workers_(program().lanes.size()),
      per_unit_(program().lanes.size(), 0),
      base_(program().lanes.size(), 0),
      origin_(now()) {
  for (const Step& s : program().steps) number_.push_back(++per_unit_[static_cast<std::size_t>(s.lane)]);
  for (std::size_t lane = 0; lane < workers_.size(); ++lane) {
    if (per_unit_[lane] == 0) continue;
    workers_[lane] = std::make_unique<Worker>();
    workers_[lane]->ring.resize(kRing);
    workers_[lane]->spans.reserve(spans);
  }
  for (std::size_t lane = 0; lane < workers_.size(); ++lane)
    if (workers_[lane])
      workers_[lane]->thread = std::thread([this, lane] { work(static_cast<LaneId>(lane)); });
}

CpuBackend::~CpuBackend() {
  closing_ = true;
  for (auto& w : workers_)
    if (w) w->issued.wake();
  for (auto& w : workers_)
    if (w) w->thread.join();
}

void CpuBackend::push(Worker& worker, const Command& command) {
  if (worker.next_issued >= kRing) worker.taken.wait_for(worker.next_issued - kRing + 1, closing_);
  worker.ring[worker.next_issued % kRing] = command;
  worker.issued.advance_to(++worker.next_issued);
}

void CpuBackend::wait(LaneId lane, StepId step, std::int64_t unit) {
  const LaneId awaited = program().steps[static_cast<std::size_t>(step)].lane;
  const auto l = static_cast<std::size_t>(awaited);
  const std::uint64_t count =
      base_[l] + static_cast<std::uint64_t>(unit) * per_unit_[l] + number_[static_cast<std::size_t>(step)];
  push(*workers_[static_cast<std::size_t>(lane)], {-1, awaited, static_cast<std::int64_t>(count), -1});
}

void CpuBackend::issue(StepId step, std::int64_t unit, std::int64_t batch) {
  Worker& worker = *workers_[static_cast<std::size_t>(program().steps[static_cast<std::size_t>(step)].lane)];
  ++worker.steps_issued;
  push(worker, {step, -1, unit, batch});
}

void CpuBackend::flush() {
  for (std::size_t lane = 0; lane < workers_.size(); ++lane) {
    if (!workers_[lane]) continue;
    workers_[lane]->done.wait_for(workers_[lane]->steps_issued, closing_);
    base_[lane] = workers_[lane]->steps_issued;
  }
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
  for (auto& w : workers_)
    if (w) w->done.wake();
}

void CpuBackend::work(LaneId lane) {
  Worker& worker = *workers_[static_cast<std::size_t>(lane)];
  const TeamSize team(executable_.threads(lane));
  std::uint64_t steps = 0;
  for (std::uint64_t next = 0;; ++next) {
    worker.issued.wait_for(next + 1, closing_);
    if (worker.issued.value() <= next) return;  // closing
    const Command command = worker.ring[next % kRing];
    if (next % (kRing / 8) == kRing / 8 - 1) worker.taken.advance_to(next + 1);
    if (command.step < 0) {
      workers_[static_cast<std::size_t>(command.awaited_lane)]->done.wait_for(
          static_cast<std::uint64_t>(command.unit), stopped_);
      continue;
    }
    if (command.batch >= 0 && !stopped_.load(std::memory_order_relaxed)) execute(lane, worker, command);
    worker.done.advance_to(++steps);
  }
}

void CpuBackend::execute(LaneId lane, Worker& worker, const Command& command) {
  try {
    if (worker.spans.size() == worker.spans.capacity()) {
      executable_.execute(command.step, command.batch);
      return;
    }
    const double begin = now();
    executable_.execute(command.step, command.batch);
    worker.spans.push_back({executable_.rank().rank, lane, command.step, command.unit, command.batch,
                            begin - origin_, now() - origin_});
  } catch (...) {
    const std::exception_ptr error = explain(command, std::current_exception());
    stop(error);
    if (Comm* comm = executable_.rank().comm) {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& e) {
        comm->abort(e.what());
      }
    }
  }
}

std::exception_ptr CpuBackend::explain(const Command& command, std::exception_ptr error) const {
  const Step& step = program().steps[static_cast<std::size_t>(command.step)];
  const auto where = [&] {
    return fmt::format("rank {}, batch {}, step '{}'{}", executable_.rank().rank, command.batch, step.name,
                       step.tag.path.empty() ? "" : fmt::format(" of module '{}'", step.tag.path));
  };
  try {
    std::rethrow_exception(error);
  } catch (const Aborted& e) {
    return std::make_exception_ptr(Aborted(e.what()));
  } catch (const NonFinite&) {
    return error;
  } catch (const std::exception& e) {
    return std::make_exception_ptr(Error(fmt::format("{}: {}", where(), e.what())));
  }
}

Timeline CpuBackend::timeline() {
  Timeline t = empty_timeline(program());
  for (auto& w : workers_)
    if (w) {
      t.spans.insert(t.spans.end(), w->spans.begin(), w->spans.end());
      w->spans.clear();
    }
  return t;
}

}  // namespace tandem
