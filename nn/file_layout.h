#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::nn {

/// How another library's files name and store some of a module's parameters. A `*` in a path stands for one
/// or more characters, up to the first dot or the first character that follows the `*` in the pattern.
struct LayoutRule {
  std::string ours;
  std::string theirs;        ///< has the same number of `*`, which stand for the same characters
  bool input_first = false;  ///< a matrix (out,in) is stored as (in,out)
  /// Their tensor is this one of equal parts of ours, along the first axis. So queries, keys and values of
  /// one layer can be stored as three.
  int part = 0, parts = 1;
  /// Ours is this one of equal parts of their tensor.
  int their_part = 0, their_parts = 1;
};
using LayoutRules = std::vector<LayoutRule>;

/// Returns rules that store a layer of queries, keys and values, in this order, as three.
LayoutRules three_layers(const std::string& ours, const std::string& queries, const std::string& keys,
                         const std::string& values);

/// How the files of another library hold a module (Module::file_layouts).
struct FileLayout {
  std::string library;   ///< "huggingface", "timm", "torchvision"
  LayoutRules rules{};   ///< parameters without a rule are stored under their own names
  std::string prefix{};  ///< which the names of some files have, and those of others lack
  /// Endings of names in old files, and what they are now.
  std::vector<std::pair<std::string, std::string>> old_endings{};
  std::vector<std::string> ignored{};  ///< entries that are no parameters: names in which `*` is as above
  /// Names of entries that repeat a parameter, if the file has them at all, and that parameter's name there.
  std::vector<std::pair<std::string, std::string>> tied{};
};

/// Returns whether `path` matches a pattern, and sets `stars` to what its `*` stand for.
bool matches(std::string_view pattern, std::string_view path, std::vector<std::string>& stars);
/// Returns a pattern with its `*` replaced.
std::string with_stars(std::string_view pattern, const std::vector<std::string>& stars);

}  // namespace tandem::nn
