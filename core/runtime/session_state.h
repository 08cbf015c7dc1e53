#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/local_rank.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// The part of a Session that keeps the state between runs. The state lies in the ranks' memory, where the
/// session's first Program places it.
class SessionState {
 public:
  /// By path, for each rank of this process: what it holds.
  using Snapshot = std::vector<StateDict>;

  /// Both must outlive this.
  SessionState(const Program& program, const LocalRanks& ranks);

  /// A state is named by its place in the first Program's `states`. Returns −1 if that has none of this path.
  StateId find(const std::string& path) const;

  /// Sets the state on every local rank that holds it. Throws Error if `state` does not fit; then nothing is
  /// set.
  void load(const StateDict& state);
  /// The whole state, as replica 0 holds it. If ranks are processes, all of them must call with their Comm,
  /// and `root` alone gets the states that other ranks hold. Tensors of `into` are filled again if nothing
  /// else uses them.
  StateDict gather(int root, Comm* comm, const StateDict& into) const;
  /// Copy the part of model `model`, from 0, of one state, from replica 0 or to all replicas; without
  /// communication. `bytes` is one model's. Throw Error if no rank of this process holds the state.
  void read(StateId state, std::size_t model, std::span<std::byte> bytes) const;
  void write(StateId state, std::size_t model, std::span<const std::byte> bytes);
  /// Is everything finite that the ranks of this process hold?
  bool is_finite() const;
  /// Copies what each local rank holds, without communication.
  Snapshot snapshot() const;
  /// Throws Error if the snapshot is of other ranks or other states; then nothing is set.
  void restore(const Snapshot& snapshot);
  /// Copies these states of every local rank, for `restore_kept` to set them again.
  void keep(const std::vector<StateId>& states);
  void restore_kept();
  /// Gives all replicas the untrained state of replica 0, such as running statistics, which each replica
  /// computes from its own samples.
  void share_untrained();

 private:
  const StateBlock& block(StateId state) const { return program_.states.at(state); }
  bool holds(const LocalRank& rank, StateId state) const;
  std::vector<std::span<std::byte>> copies(StateId state) const;
  std::span<std::byte> part(std::span<std::byte> all, StateId state, std::size_t model,
                            std::size_t bytes) const;
  template <class F> void for_each_kept(const std::vector<StateId>& states, F f);

  const Program& program_;
  const LocalRanks& ranks_;
  std::unordered_map<std::string_view, StateId> ids_;  // by path
  std::vector<StateId> kept_;
  std::vector<IdVector<StateId, Tensor>> kept_values_;  // per rank; undefined if they were never kept
};

}  // namespace tandem::engine
