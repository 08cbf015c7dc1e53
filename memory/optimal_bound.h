#pragma once
#include <vector>

#include <tandem/memory/optimal_problem.h>

namespace tandem::engine::optimal {

/// Says how early a plan can be done that goes on from what a search has reached. Never too late, so the
/// search finds the least time; the closer, the less it visits.
class LowerBound {
 public:
  /// The problem must outlive this.
  LowerBound(const NumberedProblem& problem, std::int64_t limit, bool copies);
  /// Returns the earliest end, in ms of the compute lane; infinite if no plan goes on from here. An end of
  /// `enough` or later need not be the latest that it could tell.
  double end_ms(const Label& l, double enough) const;

  /// What is computed from a label on, at least.
  struct Work {
    double end_ms;   ///< of the compute lane, if it never waits; infinite if no plan goes on
    Set made_again;  ///< by nodes that run once more, since it is gone and read later
  };
  Work work(const Label& l) const;
  /// The same if a value leaves the device, too, as far as `work` tells what else has left.
  Work without(const Label& l, const Work& work, int v) const;

 private:
  // A value that must come back, by a copy or by its node once more.
  struct Away {
    double copy_ms, again_ms;
    std::int64_t bytes;
    double left_ms;  // of the compute lane, from its first reader on
  };
  // A way for some values to be away while a node runs. No better way has its bytes and takes less.
  struct Way {
    std::int64_t bytes = 0;
    double again_ms = 0;  // of nodes that run once more
    double copy_ms = 0;   // in each direction
    double back_ms = 0;   // at least until the end of the step, from when the values begin to come back
  };
  // A place of a single graph where the values that are read after it do not fit beside its node.
  struct Tight {
    int place;
    Set may_be_away;
    std::int64_t excess;    // bytes that must be away while the node runs
    std::vector<Way> ways;  // that with the most bytes first
  };

  void find_tight_places();
  std::vector<Way> ways_of(const Tight& t) const;
  double left_after_first_reader(const Label& l, Set s) const;
  Away away(const Label& l, int number) const;
  double lost_ms(const Label& l, Set& made_again) const;
  double with_returns(const Label& l, double compute_end, Set made_again) const;
  double with_tight_place(const Label& l, const Tight& t, double compute_end, Set made_again) const;

  const NumberedProblem& p_;
  std::int64_t limit_;
  bool copies_;
  std::vector<Tight> tight_;  // in the order of their places
};

}  // namespace tandem::engine::optimal
