#include <tandem/train/all_reduce_options.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

namespace tandem {

void check(const AllReduceOptions& o) {
  if (!o.policy.empty() && o.policy != "auto" && all_reduce_policy(o.policy).name == "mg-cf")
    throw Error(
        "all_reduces.policy is mg-cf, which assumes all-reduces that slow nothing down: it is only simulated");
  if (o.threads.empty() || std::ranges::min(o.threads) < 1)
    throw Error(fmt::format("all_reduces.threads is [{}]; give one number or more, each 1 or more",
                            fmt::join(o.threads, ", ")));
  if (o.drift && !(*o.drift >= 0))
    throw Error(fmt::format("all_reduces.drift is {}; it must be 0 or more, or have no value", *o.drift));
  if (!(o.far_off >= 1))
    throw Error(fmt::format("all_reduces.far_off is {}; it must be 1 or more", o.far_off));
}

}  // namespace tandem
