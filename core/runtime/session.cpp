#include <tandem/core/graph/state_dict.h>
#include <tandem/core/runtime/session.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <numeric>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/element.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/tensor_impl.h>
#include <tandem/core/runtime/agree.h>
#include <tandem/core/runtime/load_state.h>
#include <tandem/core/schedule/verify.h>

namespace tandem::engine {

struct Session::Rank {
  struct Turn {  // one Program
    Turn(const Program& program, const RankContext& context, Rank& rank, const SessionOptions& options,
         double origin)
        : executable(project(program, context.stage), context, rank.memory, *options.kernels),
          backend(executable, rank.lanes, rank.turns.empty() ? options.spans : 0, origin) {
      executable.poison(options.poison);
    }
    Executable executable;
    CpuBackend backend;
  };

  std::unique_ptr<Turn> prepare(const Program& program, Host& host, const SessionOptions& options,
                                double origin) {
    RankContext for_program = context;
    for_program.host = &host;
    return std::make_unique<Turn>(program, for_program, *this, options, origin);
  }

  RankContext context;
  RankMemory memory;
  CpuLanes lanes;
  std::vector<std::unique_ptr<Turn>> turns;
};

namespace {

// Channels that no Program uses.
constexpr std::uint64_t kHashChannel = (std::uint64_t{1} << 30) - 1;
constexpr std::uint64_t kStateChannel = (std::uint64_t{1} << 30) - 2;

// Ranks wait for each other, so where one cannot be started the others' Comms are given up.
template <class F>
void on_each_rank(std::size_t ranks, const std::vector<std::unique_ptr<Comm>>& comms, F f) {
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::jthread> threads;
  threads.reserve(ranks);
  const auto guarded = [&](std::size_t i) {
    try {
      f(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  try {
    for (std::size_t i = 1; i < ranks; ++i) threads.emplace_back(guarded, i);
  } catch (...) {
    for (const auto& comm : comms) comm->abort("not every rank's thread could be started");
    threads.clear();
    throw;
  }
  guarded(0);
  for (auto& t : threads) t.join();
  // The cause is the error that is not merely the echo of another rank's.
  std::exception_ptr first;
  for (const auto& error : errors) {
    if (!error) continue;
    if (!first) first = error;
    try {
      std::rethrow_exception(error);
    } catch (const Aborted&) {
    } catch (...) {
      throw;
    }
  }
  if (first) std::rethrow_exception(first);
}

bool assigns_state(const Program& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(), [&](const Instruction& s) {
    return std::any_of(s.writes.begin(), s.writes.end(), [&](MemberId m) {
      return program.block(program.member(m).block).arena == Arena::state;
    });
  });
}

}  // namespace

Session::Session(Program program, std::vector<std::unique_ptr<Comm>> comms, Host& host,
                 SessionOptions options)
    : options_(options), origin_(steady_seconds()), comms_(std::move(comms)) {
  const auto add_rank = [&](Comm* comm) {
    const int rank = comm ? comm->rank() : 0;
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->context = {
        rank, rank / program.devices, program.replicas, rank % program.devices, program.devices, comm, &host};
  };
  if (comms_.empty()) add_rank(nullptr);
  for (const auto& comm : comms_) add_rank(comm.get());
  add(std::move(program), host);
}

Session::~Session() = default;

int Session::add(Program program, Host& host) {
  require_idle();
  check(program);
  std::vector<std::unique_ptr<Rank::Turn>> turns;
  for (auto& rank : ranks_) turns.push_back(rank->prepare(program, host, options_, origin_));
  std::size_t number = 0;
  while (number < programs_.size() && programs_[number]) ++number;
  if (number == programs_.size()) {
    programs_.emplace_back();
    for (auto& rank : ranks_) rank->turns.emplace_back();
  }
  programs_[number] = std::make_unique<const Program>(std::move(program));
  for (std::size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->turns[number] = std::move(turns[r]);
  return static_cast<int>(number);
}

void Session::drop(int program) {
  require_idle();
  require(program);
  for (auto& rank : ranks_) rank->turns.at(static_cast<std::size_t>(program)).reset();
  if (program > 0) programs_[static_cast<std::size_t>(program)].reset();  // the first says where states lie
}

void Session::require(int program) const {
  if (program < 0 || program >= static_cast<int>(programs_.size()))
    throw Error(fmt::format("there is no Program {}, the session has {}", program, programs_.size()));
  if (!ranks_[0]->turns[static_cast<std::size_t>(program)])
    throw Error(fmt::format("Program {} of the session was dropped", program));
}

void Session::check(const Program& program) const {
  const int size = program.replicas * program.devices;
  for (std::size_t i = 0; i < comms_.size(); ++i)
    if (!comms_[i] || (comms_.size() > 1 && comms_[i]->rank() != static_cast<int>(i)))
      throw Error(fmt::format("Comm {} of the session's {} is {}: they must be those of ranks 0, 1, …", i,
                              comms_.size(),
                              comms_[i] ? fmt::format("rank {}'s", comms_[i]->rank()) : "missing"));
  for (const auto& rank : ranks_)
    if (const RankContext& c = rank->context; (c.comm ? c.comm->size() : 1) != size ||
                                              c.replicas != program.replicas || c.stages != program.devices)
      throw Error(fmt::format("the Program is for {} ({} of {}), the run has {}", counted(size, "rank"),
                              counted(program.replicas, "replica"), counted(program.devices, "stage"),
                              c.comm ? c.comm->size() : 1));
  if (comms_.size() > 1 && static_cast<int>(comms_.size()) != size)
    throw Error(fmt::format("{} Comms for {}; give all of them, or the one of this process", comms_.size(),
                            counted(size, "rank")));
  for (const StateBlock& s : program.states)
    if (!programs_.empty() && std::none_of(programs_[0]->states.begin(), programs_[0]->states.end(),
                                           [&](const StateBlock& known) { return known.path == s.path; }))
      throw Error(
          fmt::format("state '{}' is not in the session's first Program, which must have all", s.path));
  if (const std::int64_t peak = planned_peak_with(&program);
      options_.memory_budget > 0 && peak > options_.memory_budget)
    throw Error(fmt::format(
        "the memory budget of {} bytes is too small for the session's {} together, whose peak is {}",
        options_.memory_budget,
        counted(1 + std::ranges::count_if(programs_, [](const auto& p) { return p != nullptr; }), "Program"),
        peak));
  verify(program);
  if (size > 1)
    on_each_rank(comms_.size(), comms_,
                 [&](std::size_t i) { agree(*comms_[i], hash(program), "the Program", kHashChannel); });
}

void Session::load(const StateDict& state) {
  require_idle();
  check_state(program(), state);
  for (auto& rank : ranks_) load_state(program(), rank->context.stage, rank->memory, state);
  loaded_ = true;
}

namespace {

// Of `into`, where it has one of this name and type that nobody else uses.
Tensor tensor_for(const StateBlock& s, const StateDict& into) {
  const auto found = into.find(s.path);
  const bool free = found != into.end() && found->second.type() == s.type &&
                    found->second.impl().use_count() == 1 && found->second.impl()->buffer.use_count() == 1;
  return free ? found->second : Tensor::empty(s.type);
}

Tensor copied(std::span<const std::byte> memory, Tensor into) {
  std::memcpy(into.data(), memory.data(), memory.size());
  return into;
}

}  // namespace

StateDict Session::state(int root, StateDict&& into) const {
  if (!loaded_ && !program().states.empty())
    throw Error(
        "the session has no state: none was loaded, or its last run failed, and what is left is of no batch");
  return gathered(root, nullptr, into);
}

bool Session::is_finite() const {
  return std::ranges::all_of(ranks_, [&](const auto& rank) {
    return std::ranges::all_of(program().states, [&](const StateBlock& s) {
      return program().block(s.block).device != rank->context.stage ||
             all_finite(s.type, rank->memory.state(program(), s).data());
    });
  });
}

StateDict Session::remains(int root, Comm* through) const { return gathered(root, through, {}); }

StateDict Session::gathered(int root, Comm* through, const StateDict& into) const {
  StateDict result;
  for (const auto& rank : ranks_)
    for (const StateBlock& s : program().states) {
      const RankContext& context = rank->context;
      if (context.replica != 0 || program().block(s.block).device != context.stage) continue;
      result.emplace(s.path, copied(rank->memory.state(program(), s), tensor_for(s, into)));
    }
  if (comms_.size() == 1 && comms_[0]->size() > 1)
    collect(through ? *through : *comms_[0], root, result, into);
  return result;
}

Session::Snapshot Session::snapshot() const {
  Snapshot all;
  for (const auto& rank : ranks_) {
    auto& mine = all.emplace_back();
    for (const StateBlock& s : program().states) {
      if (program().block(s.block).device != rank->context.stage) continue;
      mine.emplace(s.path, copied(rank->memory.state(program(), s), Tensor::empty(s.type)));
    }
  }
  return all;
}

void Session::restore(const Snapshot& snapshot) {
  require_idle();
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    for (const StateBlock& s : program().states) {
      const auto& mine = snapshot.at(r);
      if (const auto t = mine.find(s.path); t != mine.end())
        std::memcpy(ranks_[r]->memory.state(program(), s).data(), t->second.data(),
                    static_cast<std::size_t>(s.type.bytes()));
    }
  loaded_ = apart_ = true;
}

// Rank k of replica 0 holds stage k.
void Session::collect(Comm& comm, int root, StateDict& state, const StateDict& into) const {
  for (const StateBlock& s : program().states) {
    const int holder = program().block(s.block).device;
    if (holder == root) continue;
    if (comm.rank() == holder) comm.send(state.at(s.path).data(), s.type.bytes(), root, kStateChannel);
    if (comm.rank() != root) continue;
    Tensor t = tensor_for(s, into);
    comm.receive(t.data(), s.type.bytes(), holder, kStateChannel);
    state.insert_or_assign(s.path, std::move(t));
  }
}

// All replicas get what replica 0 has.
void Session::share_untrained_state() {
  on_each_rank(ranks_.size(), comms_, [&](std::size_t i) {
    const RankContext& c = ranks_[i]->context;
    const auto rank_of = [&](int replica) { return replica * c.stages + c.stage; };
    for (const StateBlock& s : program().states) {
      if (s.trained || s.path.starts_with(kOptimizerPath) || program().block(s.block).device != c.stage)
        continue;
      const auto memory = ranks_[i]->memory.state(program(), s);
      if (c.replica > 0) c.comm->receive(memory.data(), std::ssize(memory), rank_of(0), kStateChannel);
      for (int r = 1; c.replica == 0 && r < c.replicas; ++r)
        c.comm->send(memory.data(), std::ssize(memory), rank_of(r), kStateChannel);
    }
  });
}

void Session::run(std::int64_t first_batch, std::int64_t batches, int program) {
  require_idle();
  require(program);
  if (first_batch < 0 || batches < 0)
    throw Error(
        fmt::format("a run of {} batches from batch {}: neither may be negative", batches, first_batch));
  if (!given_up_.empty())
    throw Error(fmt::format(
        "the ranks of this session have given up ({}): make another Session, with new Comms", given_up_));
  if (!loaded_ && !this->program().states.empty())
    throw Error(
        "the session has no state to run on, or its last run failed: call load(model.state()) first, of "
        "several models load(stack_states(states))");
  try {
    begin_run(program);
    run_ranks(first_batch, batches, program);
    end_run();
  } catch (const std::exception& e) {
    if (ranks_[0]->context.comm && ranks_[0]->context.comm->size() > 1) given_up_ = e.what();
    try {
      end_run();
    } catch (const Aborted&) {  // said by what is thrown
    }
    throw;
  }
}

void Session::run_ranks(std::int64_t first_batch, std::int64_t batches, int program) {
  const bool assigns = assigns_state(this->program(program));
  if (!assigns && apart_) share_untrained_state();
  apart_ = assigns;
  loaded_ = false;
  on_each_rank(ranks_.size(), comms_, [&](std::size_t i) {
    Rank::Turn& turn = *ranks_[i]->turns.at(static_cast<std::size_t>(program));
    turn.executable.start_at(first_batch);
    engine::run(turn.backend, batches);
    turn.executable.settle(batches);
  });
  loaded_ = true;
}

// A run that a lane waits for would wait for that lane.
void Session::require_idle() const {
  const std::lock_guard lock(stop_mutex_);
  if (running_ >= 0)
    throw Error(
        "the session is running: what changes it, or runs, comes after the run, and not from a callback on a "
        "batch");
}

void Session::begin_run(int program) {
  const std::lock_guard lock(stop_mutex_);
  if (stop_) std::rethrow_exception(std::exchange(stop_, nullptr));
  running_ = program;
}

// A stop that came too late for the lanes is this run's all the same.
void Session::end_run() {
  const std::lock_guard lock(stop_mutex_);
  const int program = std::exchange(running_, -1);
  if (!stop_) return;
  for (std::size_t r = 0; program >= 0 && r < ranks_.size(); ++r) try {
      ranks_[r]->turns.at(static_cast<std::size_t>(program))->backend.flush();
    } catch (...) {  // `stop_`
    }
  loaded_ = false;
  std::rethrow_exception(std::exchange(stop_, nullptr));
}

void Session::stop(const std::string& reason) {
  const std::lock_guard lock(stop_mutex_);
  if (!stop_) stop_ = std::make_exception_ptr(Aborted(reason));
  for (const auto& rank : ranks_) {
    if (running_ >= 0) rank->turns.at(static_cast<std::size_t>(running_))->backend.stop(stop_);
    if (rank->context.comm) rank->context.comm->abort(reason);
  }
}

std::string Session::doing() const {
  std::string lines;
  for (const auto& rank : ranks_)
    for (const auto& turn : rank->turns)
      for (const std::string& text : turn ? turn->backend.doing() : std::vector<std::string>())
        lines += fmt::format("{}rank {}: {}", lines.empty() ? "" : "\n", rank->context.rank, text);
  return lines;
}

Timeline Session::timeline(int root) {
  Timeline all = empty_timeline(program());
  for (auto& rank : ranks_) {
    if (!rank->turns[0]) continue;
    Rank::Turn& turn = *rank->turns[0];
    const Timeline own = turn.backend.timeline();
    all.dropped += own.dropped;
    for (Span s : own.spans) {
      s.instruction = turn.executable.program().instruction(s.instruction).origin;
      all.spans.push_back(s);
    }
  }
  if (comms_.size() != 1 || comms_[0]->size() == 1) return all;
  Comm& comm = *comms_[0];
  static_assert(std::is_trivially_copyable_v<Span>);
  std::array<std::int64_t, 2> count{std::ssize(all.spans), all.dropped};
  double origin = origin_;
  if (comm.rank() != root) {
    comm.send(count.data(), sizeof count, root, kStateChannel);
    comm.send(&origin, sizeof origin, root, kStateChannel);
    comm.send(all.spans.data(), count[0] * static_cast<std::int64_t>(sizeof(Span)), root, kStateChannel);
  }
  for (int r = 0; comm.rank() == root && r < comm.size(); ++r) {
    if (r == root) continue;
    comm.receive(count.data(), sizeof count, r, kStateChannel);
    comm.receive(&origin, sizeof origin, r, kStateChannel);
    std::vector<Span> theirs(static_cast<std::size_t>(count[0]));
    comm.receive(theirs.data(), count[0] * static_cast<std::int64_t>(sizeof(Span)), r, kStateChannel);
    for (Span& span : theirs) span.begin += origin - origin_, span.end += origin - origin_;
    all.dropped += count[1];
    all.spans.insert(all.spans.end(), theirs.begin(), theirs.end());
  }
  return all;
}

std::int64_t Session::planned_peak() const { return planned_peak_with(nullptr); }

// The Programs share one arena of each kind, as large as the largest of them needs it.
std::int64_t Session::planned_peak_with(const Program* next) const {
  std::vector<const Program*> all;
  for (const auto& p : programs_)
    if (p) all.push_back(p.get());
  if (next) all.push_back(next);
  std::int64_t peak = 0;
  for (std::size_t device = 0; device < all[0]->memory.size(); ++device) {
    std::int64_t work = 0, state = 0;
    for (const Program* p : all) {
      work = std::max(work, p->memory[device].work);
      state = std::max(state, p->memory[device].state);
    }
    peak = std::max(peak, work + state);
  }
  return peak;
}

std::int64_t Session::executed_peak(int root) const {
  std::int64_t peak = 0;
  for (const auto& rank : ranks_) {
    std::int64_t work = 0, state = 0;
    for (const auto& turn : rank->turns) {
      if (!turn) continue;
      work = std::max(work, turn->executable.touched(Arena::work));
      state = std::max(state, turn->executable.touched(Arena::state));
    }
    peak = std::max(peak, work + state);
  }
  if (comms_.size() != 1 || comms_[0]->size() == 1) return peak;
  Comm& comm = *comms_[0];
  if (comm.rank() != root) comm.send(&peak, sizeof peak, root, kStateChannel);
  for (int r = 0; comm.rank() == root && r < comm.size(); ++r) {
    if (r == root) continue;
    std::int64_t theirs = 0;
    comm.receive(&theirs, sizeof theirs, r, kStateChannel);
    peak = std::max(peak, theirs);
  }
  return peak;
}

std::int64_t Session::live_peak() const {
  std::int64_t peak = 0;
  for (const auto& p : programs_)
    if (p) peak = std::max(peak, engine::live_peak(*p));
  return peak;
}

}  // namespace tandem::engine
