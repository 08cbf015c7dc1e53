#pragma once
#include <cstdint>
#include <string>

#include <tandem/train/callbacks.h>

namespace tandem::apps {

/// How far a run is: a bar with the time left on a terminal, a plain line every `every` batches elsewhere.
/// Its images/s are the mean since it was drawn or printed last.
class ProgressLine {
 public:
  /// `before`: batches that were done in another run.
  ProgressLine(std::int64_t total, std::int64_t before, int every, bool terminal);

  void update(const BatchResult& batch);
  /// Says on a terminal that an evaluation goes on, which may take long.
  void testing() const;

 private:
  std::int64_t total_, before_;
  int every_;
  bool terminal_;
  double seconds_ = 0;       // trained
  double since_ = 0;         // of these, since it was shown
  std::int64_t images_ = 0;  // since then
  std::string last_{};       // shown, without rates
  double done_ = 0;          // of all: what a bar then showed
};

}  // namespace tandem::apps
