#pragma once
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include <tandem/datasets/dataset.h>

namespace tandem {

/// How many samples of a dataset may be left out because they cannot be read, and which were. From any
/// thread.
class BadSamples {
 public:
  explicit BadSamples(std::int64_t allowed = 0) : allowed_(allowed) {}
  /// Counts sample `index`, once however often it is met. Where it is one too many, throws a BadSample (by
  /// `what`, and how many there were).
  void met(std::int64_t index, const BadSample& what);
  std::int64_t count() const;
  /// What was said of the first that was met; empty where none was.
  std::string first() const;

 private:
  const std::int64_t allowed_;
  mutable std::mutex mutex_;
  std::set<std::int64_t> met_;
  std::string first_;
};

/// How many a policy allows: 0 by "stop", N by "skip:N". Throws Error listing the two.
std::int64_t allowed_bad_samples(const std::string& policy);

}  // namespace tandem
