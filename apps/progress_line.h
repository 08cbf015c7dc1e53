#pragma once
#include <cstdint>

namespace tandem::apps {

/// How far a run is: a bar with the time left on a terminal, a plain line every `every` batches elsewhere.
/// Its images/s are the mean since it was drawn or printed last.
class ProgressLine {
 public:
  ProgressLine(std::int64_t total, int every, bool terminal);
  /// Ends the line, so that what is printed next, an error say, has one of its own.
  ~ProgressLine() { finish(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// So many batches were done before, in another run.
  void resume(std::int64_t batches) { before_ = batches; }
  /// `seconds`: when the run starts, on a steady clock.
  void start(double seconds) { started_ = shown_at_ = seconds; }
  /// Batch `step`, from 0, of `images`, is done at `seconds`.
  void update(std::int64_t step, std::int64_t images, double loss, double seconds);
  void finish();

 private:
  std::int64_t total_, before_ = 0;
  int every_;
  bool terminal_, open_ = false;
  double started_ = 0, shown_at_ = 0;
  std::int64_t images_ = 0;  // since then
};

}  // namespace tandem::apps
