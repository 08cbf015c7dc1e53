#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

#include "shipped_profiles.h"

namespace tandem::apps {

std::string shipped_names() {
  std::string names;
  for (const ShippedProfile& profile : shipped_profiles())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", profile.name);
  return names;
}

AllReduceProfile profile_named(const std::string& name) {
  const auto& shipped = shipped_profiles();
  const auto found = std::ranges::find(shipped, name, &ShippedProfile::name);
  std::error_code error;
  if (found == shipped.end() && !std::filesystem::exists(name, error) && !error)
    throw Error(fmt::format("profile '{}': there is no such file, and the shipped profiles are {}", name,
                            shipped_names()));
  if (found == shipped.end()) return read_all_reduce_profile(name);
  return all_reduce_profile_of(fmt::format("profile '{}'", name), std::string(found->json));
}

}  // namespace tandem::apps
