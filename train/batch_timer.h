#pragma once
#include <cstdint>

namespace tandem {

/// Measures the time per batch of a run. A batch lasts from the previous result to its own. The time between
/// `pause` and `go_on` belongs to no batch. The time of a section after its last result belongs to the next
/// result.
class BatchTimer {
 public:
  struct Total {
    std::int64_t batches = 0, samples = 0;
    double seconds = 0;
  };

  void go_on();
  void pause();
  /// Drops the time between the last result and `pause`: it was not training.
  void forget_tail() { tail_ = 0; }
  /// Ends a batch of `samples` samples, or a turn of it, and returns its seconds.
  double result(std::int64_t samples, bool is_last_turn = true);
  void begin_epoch() { epoch_ = {}; }
  /// The next batch is the first of a turn. In the run's first epoch it warms up.
  void begin_turn() { is_warming_up_ = run_.batches == 0; }

  // Totals without the run's first batch in each turn, which warms up. If there is no other batch, they are
  // of the first.
  Total epoch() const { return or_first(epoch_); }
  Total run() const { return or_first(run_); }

 private:
  Total or_first(const Total& total) const;

  double since_ = 0;  // time of the previous result, or of the beginning, in steady seconds
  double tail_ = 0;   // seconds of a section after its last result
  bool is_warming_up_ = true;
  Total first_, epoch_, run_;
};

}  // namespace tandem
