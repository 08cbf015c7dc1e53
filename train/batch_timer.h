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
  /// Ends a batch of `samples` samples, and returns its seconds.
  double result(std::int64_t samples);
  void begin_epoch() { epoch_ = {}; }

  // Totals without the run's first batch, which warms up. If there is no other batch, they are of the first.
  Total epoch() const { return or_first(epoch_); }
  Total run() const { return or_first(run_); }

 private:
  Total or_first(const Total& total) const;

  double since_ = 0;  // time of the previous result, or of the beginning, in steady seconds
  double tail_ = 0;   // seconds of a section after its last result
  Total first_, epoch_, run_;
};

}  // namespace tandem
