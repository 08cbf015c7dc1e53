#include <tandem/nn/file_layout.h>

#include <algorithm>

namespace tandem::nn {

LayoutRules three_layers(const std::string& ours, const std::string& queries, const std::string& keys,
                         const std::string& values) {
  LayoutRules rules;
  for (const std::string* theirs : {&queries, &keys, &values})
    rules.push_back({.ours = ours, .theirs = *theirs, .part = static_cast<int>(rules.size()), .parts = 3});
  return rules;
}

bool matches(std::string_view pattern, std::string_view path, std::vector<std::string>& stars) {
  stars.clear();
  while (!pattern.empty()) {
    if (pattern[0] != '*') {
      if (path.empty() || path[0] != pattern[0]) return false;
      pattern.remove_prefix(1), path.remove_prefix(1);
      continue;
    }
    pattern.remove_prefix(1);
    // A star ends where the character after it in the pattern is, and at a dot.
    const char end = pattern.empty() ? '.' : pattern[0];
    const std::size_t length = std::min(std::min(path.find(end), path.find('.')), path.size());
    if (length == 0) return false;
    stars.emplace_back(path.substr(0, length));
    path.remove_prefix(length);
  }
  return path.empty();
}

std::string with_stars(std::string_view pattern, const std::vector<std::string>& stars) {
  std::string name;
  std::size_t next = 0;
  for (const char c : pattern) {
    if (c == '*')
      name += stars.at(next++);
    else
      name += c;
  }
  return name;
}

}  // namespace tandem::nn
