#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include <tandem/core/runtime/session.h>
#include <tandem/train/callbacks.h>
#include <tandem/train/train_progress.h>

namespace tandem {

/// What becomes of a batch whose loss is NaN or infinite.
enum class OnNonFinite {
  stop,  ///< NonFinite is thrown, naming the first module whose output is not finite
  skip,  ///< a batch with a gradient that is not finite changes no state
  /// The run goes back to its last checkpoint with finite weights, or its beginning, and on without the batch
  /// whose loss or update is not finite. Each process keeps a copy of its state for that.
  rollback
};

/// Where a run can go back to.
struct RunPoint {
  TrainProgress progress;
  engine::Session::Snapshot state;
};

/// What a Recovery asks of the run that it watches, between batches. Where ranks are processes, all make the
/// same calls.
class Recoverable {
 public:
  virtual ~Recoverable() = default;
  virtual RunPoint point() const = 0;
  virtual void go_back(const RunPoint& point) = 0;
  /// Trains up to batch `end`, drained wherever the run always is, and without the batches left out.
  virtual void go_on(std::int64_t end) = 0;
  /// Is all state finite? All ranks get the same answer.
  virtual bool is_finite() const = 0;
  /// What is not finite in `batch` when it begins from the state as it is: of the batch that is to blame
  /// where the run has gone back to it, and else perhaps of one whose weights are others by now.
  virtual std::string explain(std::int64_t batch) = 0;
  virtual void report(const NonFiniteBatch& batch) const = 0;
  /// The value that rank `root` has.
  virtual std::int64_t share(std::int64_t value, int root) const = 0;
  virtual int main_rank() const = 0;  ///< knows the losses; rank 0 which updates were skipped
};

/// Decides what a training run does about batches that are not finite: hears of them while the run goes on,
/// and acts each time it is drained. Where ranks are processes each has one, and all make the same calls.
class Recovery {
 public:
  Recovery(OnNonFinite rule, int most_rollbacks, Recoverable& run);

  // While the run goes on, from one thread each:
  void loss_not_finite(std::int64_t batch);
  void update_skipped(std::int64_t batch);
  /// Are results of no interest, since the run will go back, or looks for the culprit?
  bool ignores_results() const { return searching_ || (lost_ >= 0 && rule_ == OnNonFinite::rollback); }
  /// The first batch in [begin, end) that is left out, or `end`.
  std::int64_t next_left_out(std::int64_t begin, std::int64_t end) const;

  /// The run is drained, and will go back to where it is now, no further. What was heard before is forgotten.
  void keep();
  /// To be called when the run is drained before batch `end`. True where it has gone back. Throws NonFinite
  /// where it would go back once too often, and Error where it would go back to weights that are not finite.
  bool act(std::int64_t end);

 private:
  bool report_skipped();
  void roll_back(std::int64_t batch);
  std::int64_t find_culprit(std::int64_t batch);

  const OnNonFinite rule_;
  const int most_rollbacks_;
  Recoverable& run_;
  std::int64_t lost_ = -1, skipped_ = -1;  // the first since the run was drained: loss, update
  bool reported_ = false, searching_ = false;
  RunPoint good_;
  std::set<std::int64_t> left_out_;  // since good_
};

}  // namespace tandem
