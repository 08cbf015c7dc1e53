#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::testing {

struct ReadScalar {
  std::string tag;
  std::int64_t step = 0;
  float value = 0;
  bool operator==(const ReadScalar&) const = default;
};

/// The contents of a TensorBoard event file.
struct ReadEvents {
  std::string version;
  std::vector<std::int64_t> starts;  ///< steps of SessionLog START
  std::vector<ReadScalar> scalars;
};

/// Reads every record. Fails the test if a length, a checksum, or a message is wrong.
ReadEvents read_events(const std::string& file);

}  // namespace tandem::testing
