#pragma once
#include <cstdint>
#include <fstream>
#include <string>

#include <tandem/train/callbacks.h>

namespace tandem::apps {

/// The file summary.csv: one row after each epoch, and one at the end with the means over the run. Losses,
/// accuracies and rates have one column per model.
class SummaryCsv {
 public:
  SummaryCsv() = default;
  /// Keeps the rows of the epochs that ended within the first `batches` batches, and continues after them.
  /// Throws Error if the file cannot be written.
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
