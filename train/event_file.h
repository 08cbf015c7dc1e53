#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// A file of scalars for TensorBoard: TFRecords of Event messages (tensorflow/core/util/event.proto,
/// framework/summary.proto) with only the fields that scalars need. A scalar is in the file when the call
/// returns.
class EventFile {
 public:
  /// Creates `events.out.tfevents.<seconds>.<host>` in a directory, which it creates if it does not exist.
  /// The name sorts after all existing ones, because TensorBoard reads the files in order of names. The new
  /// file discards what earlier ones hold from `first_step` on: a run that continues writes it again. Throws
  /// Error naming the file if it cannot be written.
  EventFile(const std::string& directory, std::int64_t first_step);
  void scalar(std::string_view tag, std::int64_t step, double value);
  const std::string& path() const { return path_; }

 private:
  void write(const std::string& event);
  std::string path_;
  std::ofstream out_;
};

/// Returns whether the first bytes of a file are those that an EventFile writes: a "tandem" says so in them.
bool begins_as_event_file(std::string_view bytes);

/// Returns the event files in a directory, in order of names; none if the directory does not exist.
std::vector<std::string> event_files(const std::string& directory);

}  // namespace tandem
