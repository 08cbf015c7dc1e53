#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// A file of scalars that TensorBoard reads: TFRecords of Event messages (tensorflow/core/util/event.proto,
/// framework/summary.proto), of which the few fields that scalars need are written here. Every scalar is in
/// the file when the call returns.
class EventFile {
 public:
  /// Makes `events.out.tfevents.<seconds>.<host>` in a directory, which is made if need be, after all that
  /// are there: TensorBoard reads them in the order of their names. What earlier ones hold of `first_step`
  /// and later steps is taken back: a run that goes on writes it anew. Throws Error naming the file when it
  /// cannot be written.
  EventFile(const std::string& directory, std::int64_t first_step);
  void scalar(std::string_view tag, std::int64_t step, double value);
  const std::string& path() const { return path_; }

 private:
  void write(const std::string& event);
  std::string path_;
  std::ofstream out_;
};

/// The files of that kind in a directory, in the order of their names; none where there is no directory.
std::vector<std::string> event_files(const std::string& directory);

}  // namespace tandem
