#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include <tandem/plan/session.h>
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
  Session::Snapshot state;
};

/// Decides what a training run does about batches that are not finite: hears of them while the run goes on,
/// and acts each time it is drained. Where ranks are processes each has one, and all make the same calls.
class Recovery {
 public:
  /// What it asks of the run, between batches.
  struct Run {
    std::function<RunPoint()> point;               ///< where the run is
    std::function<void(const RunPoint&)> go_back;  ///< to there
    std::function<void(std::int64_t end)> go_on;   ///< trains up to batch `end`, without those left out
    std::function<bool()> is_finite;               ///< all weights, on all ranks the same answer
    /// What is not finite in a batch that begins from the state as it is.
    std::function<std::string(std::int64_t batch)> explain;
    std::function<void(const NonFiniteBatch&)> tell;
    /// The value that rank `root` has.
    std::function<std::int64_t(std::int64_t value, int root)> share;
    int main_rank = 0;  ///< knows the losses; rank 0 which updates were skipped
  };
  Recovery(OnNonFinite rule, int most_rollbacks, Run run);

  // While the run goes on, from one thread each:
  void loss_not_finite(std::int64_t batch);
  void update_skipped(std::int64_t batch);
  /// Are results of no interest, since the run will go back, or looks for the culprit?
  bool ignores_results() const { return searching_ || (lost_ >= 0 && rule_ == OnNonFinite::rollback); }
  /// The first batch in [begin, end) that is left out, or `end`.
  std::int64_t next_left_out(std::int64_t begin, std::int64_t end) const;

  /// The run will go back to where it is now, no further.
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
  const Run run_;
  std::int64_t lost_ = -1, skipped_ = -1;  // the first since the run was drained: loss, update
  bool reported_ = false, searching_ = false;
  RunPoint good_;
  std::set<std::int64_t> left_out_;  // since good_
};

}  // namespace tandem
