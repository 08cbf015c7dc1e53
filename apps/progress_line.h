#pragma once
#include <cstdint>

namespace tandem::apps {

/// How far a run is: a bar with ETA and images/s on a terminal, a plain line now and then elsewhere.
class ProgressLine {
 public:
  ProgressLine(std::int64_t total, int every);
  void update(std::int64_t step, double loss, double images_per_second);
  void finish();

 private:
  std::int64_t total_;
  int every_;
  bool terminal_;
  double started_, drawn_ = 0;
};

}  // namespace tandem::apps
