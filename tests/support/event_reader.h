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

/// What a TensorBoard event file holds.
struct ReadEvents {
  std::string version;
  std::vector<std::int64_t> starts;  ///< steps of SessionLog START
  std::vector<ReadScalar> scalars;
};

/// Reads every record; fails the test where a length, a sum or a message is not as it should be.
ReadEvents read_events(const std::string& file);

}  // namespace tandem::testing
