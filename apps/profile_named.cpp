#include <algorithm>

#include <fmt/format.h>

#include "shipped_profiles.h"

namespace tandem::apps {

AllReduceProfile profile_named(const std::string& name) {
  const auto& shipped = shipped_profiles();
  const auto found = std::ranges::find(shipped, name, &ShippedProfile::name);
  if (found == shipped.end()) return read_all_reduce_profile(name);
  return all_reduce_profile_of(fmt::format("profile '{}'", name), std::string(found->json));
}

}  // namespace tandem::apps
