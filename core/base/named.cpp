#include <tandem/core/base/named.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {

void refuse_name(std::string_view name, const std::vector<std::string>& known, std::string_view what) {
  throw Error(fmt::format("unknown {} '{}'; there are: {}", what, name, fmt::join(known, ", ")));
}

}  // namespace tandem::engine
