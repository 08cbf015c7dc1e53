#include <tandem/core/base/error.h>

#include <cmath>

#include <fmt/format.h>

namespace tandem {

void require_not_negative(std::string_view what, double x) {
  if (!(x >= 0) || std::isinf(x))
    throw Error(fmt::format("{} {}: it must be 0 or more, and finite", what, x));
}

}  // namespace tandem
