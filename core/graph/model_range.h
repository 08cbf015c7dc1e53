#pragma once

namespace tandem::engine {

/// Some of the models that a Program trains: `count` models from number `first` on.
struct ModelRange {
  int first = 0;
  int count = 0;  ///< 0: all of them
  bool is_all() const { return count == 0; }
  bool operator==(const ModelRange&) const = default;
};

}  // namespace tandem::engine
