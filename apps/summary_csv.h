#pragma once
#include <cstdint>
#include <fstream>
#include <string>

#include <tandem/train/callbacks.h>

namespace tandem::apps {

/// summary.csv: a row after each epoch, and one at the end with the means over the run. With several models
/// losses, accuracies and rates have a column each.
class SummaryCsv {
 public:
  SummaryCsv() = default;
  /// Goes on with the rows of the epochs among the first `batches`. Throws Error where the file cannot be
  /// written.
  SummaryCsv(const std::string& file, int models, std::int64_t batches);
  void epoch(const EpochResult& result) { row("epoch", result); }
  void end(const EpochResult& result) { row("end", result); }

 private:
  void row(const char* of, const EpochResult& result);
  std::string file_;
  std::size_t models_ = 1;
  std::ofstream out_;
};

}  // namespace tandem::apps
