#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include <tandem/core/runtime/session.h>
#include <tandem/train/callbacks.h>
#include <tandem/train/train_progress.h>

namespace tandem {

/// What a run does with a batch whose loss is NaN or infinite.
enum class OnNonFinite {
  stop,  ///< throws NonFinite, which names the first module whose output is not finite
  skip,  ///< a batch with a gradient that is not finite changes no state
  /// Goes back to the last checkpoint with finite weights, or to the beginning, and continues without the
  /// batch whose loss or update is not finite. Each process keeps a copy of its state for that.
  rollback,
  /// One of several models whose loss is not finite is no longer updated; the others go on. No gradient is
  /// held back to look at it.
  mask
};

/// A point that a run can go back to.
struct RunPoint {
  TrainProgress progress;
  engine::Session::Snapshot state;
};

/// The run that a Recovery watches. The Recovery calls it between batches. If ranks are processes, all make
/// the same calls.
class Recoverable {
 public:
  virtual ~Recoverable() = default;
  virtual RunPoint point() const = 0;
  virtual void go_back(const RunPoint& point) = 0;
  /// Trains up to batch `end` without the left-out batches, and drains at the batches where the run always
  /// drains. Returns whether it got there: the run may end early.
  virtual bool go_on(std::int64_t end) = 0;
  /// Returns whether all state is finite. All ranks get the same answer.
  virtual bool is_finite() const = 0;
  /// Describes what is not finite in `batch` if it begins from the current state. Unless the run has gone
  /// back to this batch, its weights may have been different.
  virtual std::string explain(std::int64_t batch) = 0;
  virtual void report(const NonFiniteBatch& batch) const = 0;
  /// Returns the value of rank `root`.
  virtual std::int64_t share(std::int64_t value, int root) const = 0;
  virtual int main_rank() const = 0;  ///< the rank that knows the losses; rank 0 knows the skipped updates
};

/// Decides what a training run does about batches that are not finite. It is told of them while the run goes
/// on, and acts each time the run is drained. If ranks are processes, each has one, and all make the same
/// calls.
class Recovery {
 public:
  Recovery(OnNonFinite rule, int most_rollbacks, Recoverable& run);

  // While the run goes on, from one thread each:
  void loss_not_finite(std::int64_t batch);
  void update_skipped(std::int64_t batch);
  /// Returns whether results do not count, because the run will go back or is searching for the culprit.
  bool ignores_results() const { return searching_ || (lost_ >= 0 && rule_ == OnNonFinite::rollback); }
  /// Returns the first batch in [begin, end) that is left out, or `end`.
  std::int64_t next_left_out(std::int64_t begin, std::int64_t end) const;

  /// Makes the current point of the drained run the one to go back to, and forgets what was reported before.
  void keep();
  /// Call it when the run is drained before batch `end`. Returns true if the run has gone back. Throws
  /// NonFinite if that is one rollback too many, and Error if the weights to go back to are not finite.
  bool act(std::int64_t end);

 private:
  bool report_skipped();
  void roll_back(std::int64_t batch);
  std::optional<std::int64_t> find_culprit(std::int64_t batch);
  void end_search();

  const OnNonFinite rule_;
  const int most_rollbacks_;
  Recoverable& run_;
  std::int64_t lost_ = -1, skipped_ = -1;  // first bad loss and first skipped update since the last drain
  bool reported_ = false, searching_ = false;
  RunPoint good_;
  std::set<std::int64_t> left_out_;  // since good_
};

}  // namespace tandem
