#include <tandem/core/runtime/session_state.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/element.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/core/graph/tensor_impl.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/core/runtime/state_memory.h>

namespace tandem::engine {
namespace {

std::vector<StateMemory> held_by(const Program& program, const LocalRank& rank) {
  return states_of_device(program, rank.context.device, rank.memory);
}

// A Tensor of `into`, if it has one of this name and type that nothing else uses; otherwise a new one.
Tensor tensor_for(const StateBlock& s, const StateDict& into) {
  const auto found = into.find(s.path);
  const bool free = found != into.end() && found->second.type() == s.type &&
                    found->second.impl().use_count() == 1 && found->second.impl()->buffer.use_count() == 1;
  return free ? found->second : Tensor::empty(s.type);
}

Tensor copied(std::span<const std::byte> bytes, Tensor into) {
  std::memcpy(into.data(), bytes.data(), bytes.size());  // GCC 12 copies a const range by elements
  return into;
}

}  // namespace

SessionState::SessionState(const Program& program, const LocalRanks& ranks)
    : program_(program),
      ranks_(ranks),
      kept_values_(ranks.size(), IdVector<StateId, Tensor>(program.states.size())) {
  for (const StateId s : program.states.ids()) ids_.emplace(block(s).path, s);
}

StateId SessionState::find(const std::string& path) const {
  const auto found = ids_.find(path);
  return found == ids_.end() ? StateId() : found->second;
}

void SessionState::load(const StateDict& state) {
  check_state(program_, state);
  for (const auto& rank : ranks_) load_state(program_, rank->context.device, rank->memory, state);
}

StateDict SessionState::gather(int root, Comm* comm, const StateDict& into) const {
  StateDict result;
  for (const auto& rank : ranks_) {
    if (rank->context.replica != 0) continue;
    for (const auto& [state, bytes] : held_by(program_, *rank))
      result.emplace(state.path, copied(bytes, tensor_for(state, into)));
  }
  if (!comm) return result;
  for (const StateBlock& s : program_.states) {
    const int holder = program_.block(s.block).device;  // rank k of replica 0 holds device k's
    if (holder == root) continue;
    if (comm->rank() == holder) comm->send(result.at(s.path).data(), s.type.bytes(), root, kSessionChannel);
    if (comm->rank() != root) continue;
    Tensor t = tensor_for(s, into);
    comm->receive(t.data(), s.type.bytes(), holder, kSessionChannel);
    result.insert_or_assign(s.path, std::move(t));
  }
  return result;
}

bool SessionState::holds(const LocalRank& rank, StateId state) const {
  return program_.block(block(state).block).device == rank.context.device;
}

// Returns where the ranks of this process hold a state; replica 0 comes first.
std::vector<std::span<std::byte>> SessionState::copies(StateId state) const {
  std::vector<std::span<std::byte>> copies;
  for (const auto& rank : ranks_)
    if (holds(*rank, state)) copies.push_back(rank->memory.state(program_, block(state)));
  if (copies.empty())
    throw Error(fmt::format("no rank of this process holds the state '{}'", block(state).path));
  return copies;
}

void SessionState::read(StateId state, std::size_t model, std::span<std::byte> bytes) const {
  std::ranges::copy(part(copies(state)[0], state, model, bytes.size()), bytes.begin());
}

void SessionState::write(StateId state, std::size_t model, std::span<const std::byte> bytes) {
  for (const auto& copy : copies(state))
    std::ranges::copy(bytes, part(copy, state, model, bytes.size()).begin());
}

// Returns what one model has of a state's memory.
std::span<std::byte> SessionState::part(std::span<std::byte> all, StateId state, std::size_t model,
                                        std::size_t bytes) const {
  if (bytes > 0 ? all.size() % bytes != 0 || model >= all.size() / bytes : !all.empty())
    throw Error(fmt::format("state '{}' has {} bytes in all: {} bytes cannot be those of model {}",
                            block(state).path, all.size(), bytes, model));
  return all.subspan(model * bytes, bytes);
}

bool SessionState::is_finite() const {
  return std::ranges::all_of(ranks_, [&](const auto& rank) {
    return std::ranges::all_of(held_by(program_, *rank), [](const StateMemory& held) {
      return all_finite(held.state.type, held.bytes.data());
    });
  });
}

SessionState::Snapshot SessionState::snapshot() const {
  Snapshot all;
  for (const auto& rank : ranks_) {
    auto& mine = all.emplace_back();
    for (const auto& [state, bytes] : held_by(program_, *rank))
      mine.emplace(state.path, copied(bytes, Tensor::empty(state.type)));
  }
  return all;
}

// Calls f(copy, bytes) for each of these states and each rank that holds it.
template <class F> void SessionState::for_each_kept(const std::vector<StateId>& states, F f) {
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    for (const StateId s : states)
      if (holds(*ranks_[r], s)) {
        Tensor& copy = kept_values_[r][s];
        if (!copy.defined()) copy = Tensor::empty(block(s).type);
        f(copy, ranks_[r]->memory.state(program_, block(s)));
      }
}

void SessionState::keep(const std::vector<StateId>& states) {
  kept_.clear();
  for_each_kept(states, [](Tensor& copy, std::span<std::byte> bytes) { copied(bytes, copy); });
  kept_ = states;
}

void SessionState::restore_kept() {
  for_each_kept(kept_, [](const Tensor& copy, std::span<std::byte> bytes) {
    std::memcpy(bytes.data(), copy.data(), bytes.size());
  });
}

void SessionState::restore(const Snapshot& snapshot) {
  const auto fits = [&](std::size_t r) {
    const auto held = held_by(program_, *ranks_[r]);
    return held.size() == snapshot[r].size() && std::ranges::all_of(held, [&](const StateMemory& h) {
             const auto found = snapshot[r].find(h.state.path);
             return found != snapshot[r].end() && found->second.type() == h.state.type;
           });
  };
  if (snapshot.size() != ranks_.size()) throw Error("the snapshot is of another number of ranks");
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (!fits(r)) throw Error("the snapshot is of other states: give one of this session's Program");
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    for (const auto& [state, bytes] : held_by(program_, *ranks_[r]))
      std::memcpy(bytes.data(), snapshot.at(r).at(state.path).data(), bytes.size());
}

void SessionState::share_untrained() {
  on_each_rank(ranks_, [&](LocalRank& rank) {
    const RankContext& c = rank.context;
    const auto rank_of = [&](int replica) { return replica * c.devices + c.device; };
    for (const auto& [state, bytes] : held_by(program_, rank)) {
      if (state.is_updated()) continue;
      if (c.replica > 0) c.comm->receive(bytes.data(), std::ssize(bytes), rank_of(0), kSessionChannel);
      for (int r = 1; c.replica == 0 && r < c.replicas; ++r)
        c.comm->send(bytes.data(), std::ssize(bytes), rank_of(r), kSessionChannel);
    }
  });
}

}  // namespace tandem::engine
