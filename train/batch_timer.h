#pragma once
#include <cstdint>

namespace tandem {

/// Times a run by its results: a batch takes from the result before to its own. Between `pause` and `go_on`
/// the run does something else, which counts with no batch; what a section does after its last result counts
/// with the next one's.
class BatchTimer {
 public:
  struct Total {
    std::int64_t batches = 0, samples = 0;
    double seconds = 0;
  };

  void go_on();
  void pause();
  /// What was done since the last result was no training.
  void forget_tail() { tail_ = 0; }
  /// Of a batch of so many samples: its seconds.
  double result(std::int64_t samples);
  void begin_epoch() { epoch_ = {}; }

  // Without the run's first batch, which warms up; unless there is no other: it then has all seconds.
  Total epoch() const { return or_first(epoch_); }
  Total run() const { return or_first(run_); }

 private:
  Total or_first(const Total& total) const;

  double since_ = 0;  // the result before, or the beginning: steady seconds
  double tail_ = 0;   // seconds of a section after its last result
  Total first_, epoch_, run_;
};

}  // namespace tandem
