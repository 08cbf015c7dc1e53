#pragma once
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include <tandem/datasets/dataset.h>

namespace tandem {

/// Counts the samples of a dataset that cannot be read, and limits how many can be left out. Any thread can
/// call it.
class BadSamples {
 public:
  explicit BadSamples(std::int64_t allowed = 0) : allowed_(allowed) {}
  /// Counts sample `index`, only once even if it is met again. If it is one too many, throws BadSample with
  /// the message of `what` and the count.
  void met(std::int64_t index, const BadSample& what);
  std::int64_t count() const;
  /// Returns the message of the first bad sample; empty if there is none.
  std::string first() const;

 private:
  const std::int64_t allowed_;
  mutable std::mutex mutex_;
  std::set<std::int64_t> met_;
  std::string first_;
};

/// Returns how many bad samples a policy allows: 0 for "stop", N for "skip:N". Throws Error listing these
/// two.
std::int64_t allowed_bad_samples(const std::string& policy);

}  // namespace tandem
