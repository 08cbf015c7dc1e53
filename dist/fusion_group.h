#pragma once
#include <string>
#include <vector>

namespace tandem {

/// Parameters, by path, whose gradients are reduced together, by up to `threads` threads of each rank (r).
struct FusionGroup {
  std::vector<std::string> parameters{};
  int threads = 1;
};

}  // namespace tandem
