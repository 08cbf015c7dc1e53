#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <tandem/dist/all_reduce_profile.h>

namespace tandem::apps {

/// A profile of docs/profiles, which is part of the program.
struct ShippedProfile {
  std::string_view name;  ///< that of its file, without .json
  std::string_view json;
};
const std::vector<ShippedProfile>& shipped_profiles();
/// Returns their names: "xception, resnet152".
std::string shipped_names();

/// Returns the shipped profile of this name, or else the one in the file of this name. Throws Error naming it
/// if there is neither, with the shipped ones, or if it is malformed.
AllReduceProfile profile_named(const std::string& name);

}  // namespace tandem::apps
