#include <tandem/datasets/bad_samples.h>

#include <charconv>

#include <fmt/format.h>

namespace tandem {

void BadSamples::met(std::int64_t index, const BadSample& what) {
  const std::lock_guard lock(mutex_);
  if (met_.insert(index).second && first_.empty()) first_ = what.what();
  const auto count = static_cast<std::int64_t>(met_.size());
  if (count <= allowed_) return;
  if (allowed_ == 0) throw what;
  throw BadSample(fmt::format("{}; it is number {} of the samples that cannot be read, and {} may be skipped",
                              what.what(), count, allowed_));
}

std::int64_t BadSamples::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(met_.size());
}

std::string BadSamples::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

std::int64_t allowed_bad_samples(const std::string& policy) {
  if (policy == "stop") return 0;
  const std::string skip = "skip:";
  std::int64_t allowed = -1;
  const char* const end = policy.data() + policy.size();
  if (policy.starts_with(skip) && std::from_chars(policy.data() + skip.size(), end, allowed).ptr == end &&
      allowed >= 0)
    return allowed;
  throw Error(
      fmt::format("'{}' is no policy for bad samples; write 'stop', or 'skip:N' to skip up to N", policy));
}

}  // namespace tandem
