#pragma once
#include <string>
#include <vector>

namespace tandem {

/// Parameters, by path, whose gradients are reduced together: by up to `threads` threads of each rank (r),
/// and not before `earliest_ms` after the begin of the stage's backward pass.
struct FusionGroup {
  std::vector<std::string> parameters{};
  int threads = 1;
  double earliest_ms = 0;
};

}  // namespace tandem
