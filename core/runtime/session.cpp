#include <tandem/core/runtime/session.h>

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/base/team.h>
#include <tandem/core/runtime/gather.h>
#include <tandem/core/runtime/memory_need.h>
#include <tandem/core/runtime/session_telemetry.h>
#include <tandem/core/schedule/verify.h>

namespace tandem::engine {
namespace {

// True if a device has several compute lanes that wait for other devices at barriers. After a barrier all
// lanes wake at once, and the kernel may then put lanes of one device on cores that another device's lanes
// need, and so delay the unit's end. Such lanes therefore stay on their device's share of the cores. Other
// lanes run anywhere: they use what another device leaves, and beside another process they go where there is
// room.
bool keeps_to_its_cores(const Program& program, int device) {
  const auto lanes = std::ranges::count_if(program.lanes, [&](const Lane& lane) {
    return lane.kind == LaneKind::compute && lane.device == device;
  });
  return lanes > 1 && std::ranges::any_of(program.instructions, [&](const Instruction& s) {
           return s.tag.phase == Phase::barrier;
         });
}

LocalRanks local_ranks(const Program& program, const std::vector<std::unique_ptr<Comm>>& comms) {
  if (program.instructions.empty()) throw Error("a Program without instructions: make one with build()");
  LocalRanks ranks;
  const auto add = [&](Comm* comm) {
    const int rank = comm ? comm->rank() : 0;
    const int device = rank % program.devices;
    auto local = std::make_unique<LocalRank>();
    local->context = {rank, rank / program.devices, program.replicas, device, program.devices, comm};
    if (keeps_to_its_cores(program, device))
      local->lanes = CpuLanes({static_cast<int>(ranks.size()), static_cast<int>(comms.size())});
    ranks.push_back(std::move(local));
  };
  if (comms.empty()) add(nullptr);
  for (std::size_t i = 0; i < comms.size(); ++i) {
    if (!comms[i] || (comms.size() > 1 && comms[i]->rank() != static_cast<int>(i)))
      throw Error(fmt::format("Comm {} of the session's {} is {}: they must be those of ranks 0, 1, …", i,
                              comms.size(),
                              comms[i] ? fmt::format("rank {}'s", comms[i]->rank()) : "missing"));
    add(comms[i].get());
  }
  return ranks;
}

// Tells the Comm while a Program runs.
struct Running {
  explicit Running(Comm* comm) : comm(comm) {
    if (comm) comm->running(true);
  }
  ~Running() {
    if (comm) comm->running(false);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  Comm* comm;
};

std::uint64_t hash_of_states(const Program& program) {
  std::uint64_t h = fnv1a("states");
  for (const StateBlock& s : program.states) h = fnv1a(fmt::format("{} {}", s.path, to_string(s.type)), h);
  return h;
}

}  // namespace

Session::Session(Program program, std::vector<std::unique_ptr<Comm>> comms, Host& host,
                 SessionOptions options)
    : options_(options),
      origin_(steady_seconds()),
      comms_(std::move(comms)),
      ranks_(local_ranks(program, comms_)),
      first_(std::make_shared<const Program>(std::move(program))),
      state_(*first_, ranks_) {
  prepare(first_, host);
}

Session::~Session() = default;

ProgramHandle Session::add(Program program, Host& host) {
  require_idle();
  return prepare(std::make_shared<const Program>(std::move(program)), host);
}

ProgramHandle Session::prepare(const std::shared_ptr<const Program>& program, Host& host) {
  check(*program);
  const KernelTable* kernels = options_.kernels ? options_.kernels : program->kernels;
  if (!kernels) throw Error("the Program was built for no kernels: give some in SessionOptions::kernels");
  std::vector<std::unique_ptr<LocalRank::Prepared>> prepared;
  for (const auto& rank : ranks_) {
    RankContext context = rank->context;
    context.host = &host;
    prepared.push_back(std::make_unique<LocalRank::Prepared>(*program, context, *rank, *kernels,
                                                             added_ == 0 ? options_.spans : 0, origin_));
    prepared.back()->executable.poison(options_.poison);
  }
  const int number = added_++;
  Added added{program, {}, {}};
  for (const StateId written : written_states(*program)) {
    const StateBlock& state = program->states[written];
    added.written.push_back(state_.find(state.path));
    if (!state.is_updated()) added.written_forward.push_back(added.written.back());
  }
  programs_.emplace(number, std::move(added));
  const std::lock_guard lock(mutex_);
  for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->programs.emplace(number, std::move(prepared[r]));
  return {this, number};
}

const Program& Session::program(ProgramHandle handle) const {
  if (handle.number_ == 0) return *first_;
  require(handle);
  return *programs_.at(handle.number_).program;
}

void Session::drop(ProgramHandle program) {
  require_idle();
  require(program);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& rank : ranks_) rank->drop(program.number_);
  }
  programs_.erase(program.number_);
}

void Session::require(ProgramHandle program) const {
  if (program.session_ && program.session_ != this)
    throw Error("the handle is of another session: give one that this session's add() returned");
  if (!programs_.contains(program.number_))
    throw Error(fmt::format("Program {} of the session was dropped", program.number_));
}

void Session::check(const Program& program) const {
  const int size = program.replicas * program.devices;
  for (const auto& rank : ranks_)
    if (const RankContext& c = rank->context; (c.comm ? c.comm->size() : 1) != size ||
                                              c.replicas != program.replicas || c.devices != program.devices)
      throw Error(fmt::format(
          "the Program is for {} ({} of {}), the run has {}: give thread_comms(program.ranks()), or the Comm "
          "of this process",
          counted(size, "rank"), counted(program.replicas, "replica"), counted(program.devices, "device"),
          c.comm ? c.comm->size() : 1));
  if (comms_.size() > 1 && static_cast<int>(comms_.size()) != size)
    throw Error(fmt::format("{} Comms for {}; give all of them, or the one of this process", comms_.size(),
                            counted(size, "rank")));
  for (const StateBlock& s : program.states)
    if (state_.find(s.path) < 0)
      throw Error(
          fmt::format("state '{}' is not in the session's first Program, which must have all", s.path));
  auto all = sharing_memory();
  if (&program != first_.get()) all.push_back(&program);
  if (const std::int64_t peak = engine::planned_peak(all);
      options_.memory_budget > 0 && peak > options_.memory_budget)
    throw Error(fmt::format(
        "the memory budget of {} bytes is too small for the session's {} together, whose peak is {}",
        options_.memory_budget, counted(std::ssize(all), "Program"), peak));
  require_memory(all, &program == first_.get());
  verify(program);
  const std::vector<Agreed> parts{{"the names or shapes of the model's state", hash_of_states(program)},
                                  {"the Program", hash(program)}};
  if (size > 1)
    on_each_rank(ranks_, [&](const LocalRank& rank) { agree(*rank.context.comm, parts, kSessionChannel); });
}

// Memory that is not there would end the process without a word when it is touched. `all` are the Programs
// that share memory, the last one new. If ranks are processes, all of them refuse together, and those of one
// machine take from the same memory.
void Session::require_memory(const std::vector<const Program*>& all, bool is_first) const {
  const auto here = [&](const std::vector<const Program*>& programs) {  // on this process's ranks
    std::int64_t bytes = 0;
    for (const auto& rank : ranks_) bytes += engine::planned_peak(programs, rank->context.device);
    return bytes;
  };
  const std::int64_t held = is_first ? 0 : here(sharing_memory());
  const MemoryNeed need{here(all) - held, static_cast<int>(ranks_.size()), memory_pools()};
  const MemoryVerdict verdict = check_memory(need, processes());
  if (verdict.fits) return;
  if (!verdict.here) throw Error("out of memory: another rank has less free than is planned");
  throw Error(fmt::format(
      "out of memory: {} planned with {:.3g} GB{}{}, and {:.3g} GB are free; take smaller batches, or a memory "
      "budget",
      is_first ? "the Program is" : "the Programs together are",
      static_cast<double>(verdict.here->needed) / 1e9, is_first ? "" : " more than is held",
      verdict.here->ranks > 1 ? fmt::format(" on {} ranks", verdict.here->ranks) : "",
      static_cast<double>(verdict.here->free) / 1e9));
}

// The first stays, also after it was dropped: it says where states lie.
std::vector<const Program*> Session::sharing_memory() const {
  std::vector<const Program*> all{first_.get()};
  for (const auto& [number, added] : programs_)
    if (number > 0) all.push_back(added.program.get());
  return all;
}

// This process's Comm, if ranks are processes.
Comm* Session::processes() const {
  return comms_.size() == 1 && comms_[0]->size() > 1 ? comms_[0].get() : nullptr;
}

void Session::load(const StateDict& state) {
  require_idle();
  state_.load(state);
  loaded_ = true;
}

void Session::require_state() const {
  if (!loaded_ && !first_->states.empty())
    throw Error(
        "the session has no state: none was loaded, or its last run failed, and what is left is of no batch");
}

Session::Snapshot Session::snapshot() const {
  require_state();
  return state_.snapshot();
}

StateDict Session::state(int root, StateDict&& into) const {
  require_state();
  return state_.gather(root, processes(), into);
}

void Session::read(StateId state, std::size_t model, std::span<std::byte> bytes) const {
  require_idle();
  require_state();
  state_.read(state, model, bytes);
}

void Session::write(StateId state, std::size_t model, std::span<const std::byte> bytes) {
  require_idle();
  require_state();
  state_.write(state, model, bytes);
}

const std::vector<StateId>& Session::written(ProgramHandle program) const {
  require(program);
  return programs_.at(program.number_).written;
}

StateDict Session::remains(int root, Comm* through) const {
  return state_.gather(root, processes() && through ? through : processes(), {});
}

void Session::restore(const Snapshot& snapshot) {
  require_idle();
  state_.restore(snapshot);
  loaded_ = apart_ = true;
}

std::int64_t Session::run(std::int64_t first_batch, std::int64_t batches, ProgramHandle program,
                          RunLimit* limit) {
  require_idle();
  require(program);
  if (first_batch < 0 || batches < 0)
    throw Error(
        fmt::format("a run of {} batches from batch {}: neither may be negative", batches, first_batch));
  if (!aborted_reason_.empty())
    throw Error(
        fmt::format("the ranks of this session have given up ({}): make another Session, with new Comms",
                    aborted_reason_));
  if (!loaded_ && !first_->states.empty())
    throw Error(
        "the session has no state to run on, or its last run failed: call load(model.state()) first, of "
        "several models load(stack_states(states))");
  bool began = false;
  try {
    begin_run(program.number_);
    began = true;
    const std::int64_t ran = run_ranks(first_batch, batches, program.number_, limit);
    end_run();
    return ran;
  } catch (const std::exception& e) {
    if (ranks_[0]->context.comm && ranks_[0]->context.comm->size() > 1) aborted_reason_ = e.what();
    try {
      end_run();
    } catch (const Aborted&) {  // what is thrown below says it
    }
    if (began && !processes() && !updated(program.number_)) {
      state_.restore_kept();
      loaded_ = true;
    }
    throw;
  }
}

bool Session::updated(int program) const {
  return std::ranges::any_of(
      ranks_, [&](const auto& rank) { return rank->programs.at(program)->executable.updated(); });
}

std::int64_t Session::run_ranks(std::int64_t first_batch, std::int64_t batches, int program,
                                RunLimit* limit) {
  const bool assigns = !programs_.at(program).written.empty();
  state_.keep(programs_.at(program).written_forward);
  for (const auto& rank : ranks_) rank->programs.at(program)->executable.start_at(first_batch);
  if (!assigns && apart_) state_.share_untrained();
  apart_ = assigns;
  loaded_ = false;
  end_own_team();
  const auto ran = [&] {
    return limit ? std::clamp<std::int64_t>(limit->end() - first_batch, 0, batches) : batches;
  };
  on_each_rank(ranks_, [&](LocalRank& rank) {
    LocalRank::Prepared& prepared = *rank.programs.at(program);
    const Running running(rank.context.comm);
    prepared.backend.set_limit(limit);
    engine::run(prepared.backend, batches, limit, first_batch);
    prepared.executable.settle(ran());
  });
  loaded_ = true;
  return ran();
}

// A run that a lane waits for would wait for that lane.
void Session::require_idle() const {
  const std::lock_guard lock(mutex_);
  if (running_ >= 0)
    throw Error(
        "the session is running: its state can be read and changed, and it can run again, after the run, and "
        "not from a callback on a batch");
}

void Session::throw_if_stopped() {
  const std::lock_guard lock(mutex_);
  if (stop_) std::rethrow_exception(std::exchange(stop_, nullptr));
}

void Session::begin_run(int program) {
  const std::lock_guard lock(mutex_);
  if (stop_) std::rethrow_exception(std::exchange(stop_, nullptr));
  running_ = program;
}

// A stop that came too late for the lanes still belongs to this run.
void Session::end_run() {
  const std::lock_guard lock(mutex_);
  const int program = std::exchange(running_, -1);
  if (!stop_) return;
  for (std::size_t r = 0; program >= 0 && r < ranks_.size(); ++r) try {
      ranks_[r]->programs.at(program)->backend.flush();
    } catch (...) {  // `stop_`
    }
  loaded_ = false;
  std::rethrow_exception(std::exchange(stop_, nullptr));
}

void Session::stop(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!stop_) stop_ = std::make_exception_ptr(Aborted(reason));
  for (const auto& rank : ranks_) {
    if (running_ >= 0) rank->programs.at(running_)->backend.stop(stop_);
    if (rank->context.comm) rank->context.comm->abort(reason);
  }
}

std::string Session::doing(std::optional<int> rank) const {
  const std::lock_guard lock(mutex_);
  return engine::doing(ranks_, rank);
}

void Session::set_threads(const std::map<std::int64_t, int>& by_channel, ProgramHandle program) {
  require_idle();
  require(program);
  std::set<std::int64_t> collectives;
  const Program& whole = this->program(program);
  for (const Instruction& s : whole.instructions)
    if (whole.lane(s.lane).kind == LaneKind::collective) collectives.insert(s.channel);
  for (const auto& [channel, threads] : by_channel)
    if (const bool known = collectives.contains(channel); !known || threads < 1)
      throw Error(fmt::format("channel {} cannot have {}: {}", channel, counted(threads, "thread"),
                              known ? "there must be one or more" : "no collective of the Program has it"));
  for (const auto& rank : ranks_)
    for (const auto& [channel, threads] : by_channel)
      rank->programs.at(program.number_)->executable.set_threads(channel, threads);
}

void Session::measure(std::size_t spans, ProgramHandle program) {
  require_idle();
  require(program);
  for (const auto& rank : ranks_) rank->programs.at(program.number_)->backend.measure(spans);
}

Timeline Session::timeline(int root, ProgramHandle program) {
  return gathered_timeline(ranks_, program.number_, this->program(program), origin_, processes(), root);
}

std::int64_t Session::planned_peak() const { return engine::planned_peak(sharing_memory()); }

std::int64_t Session::executed_peak(int root) const {
  return engine::executed_peak(ranks_, processes(), root);
}

std::int64_t Session::live_peak() const {
  std::int64_t peak = 0;
  for (const Program* p : sharing_memory()) peak = std::max(peak, engine::live_peak(*p));
  return peak;
}

}  // namespace tandem::engine
