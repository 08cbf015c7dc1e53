#include <tandem/core/base/error.h>

#include <cmath>
#include <cstdio>

#include <fmt/format.h>

namespace tandem {

void print_warning(const std::string& text) { fmt::print(stderr, "tandem: {}\n", text); }

void require_not_negative(std::string_view what, double x) {
  if (!(x >= 0) || std::isinf(x))
    throw Error(fmt::format("{} {}: it must be 0 or more, and finite", what, x));
}

}  // namespace tandem
