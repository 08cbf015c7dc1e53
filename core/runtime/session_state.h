#pragma once
#include <cstddef>
#include <functional>
#include <set>
#include <span>
#include <string>
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
  SessionState(const Program& program, const LocalRanks& ranks) : program_(program), ranks_(ranks) {}

  /// Sets the state on every local rank that holds it. Throws Error if `state` does not fit; then nothing is
  /// set.
  void load(const StateDict& state);
  /// The whole state, as replica 0 holds it. If ranks are processes, all of them must call with their Comm,
  /// and `root` alone gets the states that other ranks hold. Tensors of `into` are filled again if nothing
  /// else uses them.
  StateDict gather(int root, Comm* comm, const StateDict& into) const;
  /// Copy the part of model `model`, from 0, of one state, from replica 0 or to all replicas; without
  /// communication. `bytes` is one model's. Throw Error if no rank of this process holds the state.
  void read(const std::string& path, std::size_t model, std::span<std::byte> bytes) const;
  void write(const std::string& path, std::size_t model, std::span<const std::byte> bytes);
  /// Is everything finite that the ranks of this process hold?
  bool is_finite() const;
  /// Copies what each local rank holds, without communication.
  Snapshot snapshot() const;
  /// Throws Error if the snapshot is of other ranks or other states; then nothing is set.
  void restore(const Snapshot& snapshot);
  /// Copies these states of every local rank, for `restore_kept` to set them again.
  void keep(const std::set<std::string>& paths);
  void restore_kept();
  /// Gives all replicas the untrained state of replica 0, such as running statistics, which each replica
  /// computes from its own samples.
  void share_untrained();

 private:
  void on_part(const std::string& path, std::size_t model, std::size_t size,
               const std::function<void(std::span<std::byte>)>& f) const;
  const Program& program_;
  const LocalRanks& ranks_;
  Snapshot kept_;
};

}  // namespace tandem::engine
