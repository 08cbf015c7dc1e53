#pragma once
#include <map>
#include <memory>
#include <random>
#include <string>

#include <tandem/core/base/files.h>

namespace tandem::testing {
using namespace engine;

/// Passes every call on and keeps account of what a disk would still hold after a power cut: the contents of
/// synced files, and the names in synced directories.
class PowerCutFiles final : public Files {
 public:
  /// `root` exists, is empty, and is synced.
  explicit PowerCutFiles(std::string root);

  /// Whether names and contents that were not synced are on the disk all the same. With `chance` this is
  /// drawn for each name separately, and any part of the contents may be there.
  struct Luck {
    bool names = false, contents = false;
    std::mt19937_64* chance = nullptr;
  };
  /// Before call number `at`, counted from 0, writes what the disk holds of `root` into the directory `to`.
  void cut_at(int at, Luck luck, std::string to) { at_ = at, luck_ = luck, to_ = std::move(to); }
  int calls() const { return calls_; }

  int open(const std::string& path, int flags, mode_t mode) override;
  ssize_t write(int file, const void* data, std::size_t bytes) override;
  int fsync(int file) override;
  int close(int file) override;
  int mkdir(const std::string& path) override;
  int rename(const std::string& from, const std::string& to) override;
  int unlink(const std::string& path) override;
  int rmdir(const std::string& path) override;

 private:
  struct Node {
    bool directory = false;
    std::string contents, synced_contents;
    std::map<std::string, std::shared_ptr<Node>> names, synced_names;
  };
  using NodePtr = std::shared_ptr<Node>;
  NodePtr find(const std::string& path) const;
  /// The directory of `path`, and its name there.
  std::pair<NodePtr, std::string> place(const std::string& path) const;
  void leave(const Node& node, const std::string& path) const;
  std::string contents_left(const Node& node) const;
  std::map<std::string, NodePtr> names_left(const Node& node) const;
  void count();

  std::string root_, to_;
  Luck luck_;
  int at_ = -1, calls_ = 0;
  NodePtr disk_ = std::make_shared<Node>();
  std::map<int, NodePtr> open_;
};

}  // namespace tandem::testing
