#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tandem/memory/memory_decisions.h>

namespace tandem::engine {

/// Where values are made and read, and how long they rest between forward and backward. Keeps a reference to
/// the problem.
class Lifetimes {
 public:
  explicit Lifetimes(const MemoryProblem& problem);

  /// From the last reader of forward to the first of backward, if nothing is copied or computed again.
  double rest_ms(int v) const { return rest_ms_[static_cast<std::size_t>(v)]; }

  /// The time of all nodes that make `v` again if the values with these treatments are there. Adds to `needed`
  /// the other values that are read or made on the way.
  double recompute_ms(int v, const std::vector<Treatment>& treatments,
                      std::vector<int>* needed = nullptr) const;

 private:
  struct Producer {
    std::size_t graph, node;
    bool exists;
  };

  const MemoryProblem& p_;
  std::vector<Producer> producer_;
  std::vector<double> rest_ms_;
  // Per value: the last call of recompute_ms that met it, so one thread at a time can call that.
  mutable std::vector<std::int64_t> seen_;
  mutable std::int64_t call_ = 0;
};

}  // namespace tandem::engine
