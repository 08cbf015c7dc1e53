#include "power_cut.h"

#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "seed.h"

namespace tandem::testing {
using namespace engine;

namespace fs = std::filesystem;

PowerCutFiles::PowerCutFiles(std::string root) : root_(std::move(root)) { disk_->directory = true; }

PowerCutFiles::NodePtr PowerCutFiles::find(const std::string& path) const {
  NodePtr node = disk_;
  std::istringstream parts(path.substr(root_.size()));
  for (std::string part; std::getline(parts, part, '/');)
    if (!part.empty()) node = node->names.at(part);
  return node;
}

std::pair<PowerCutFiles::NodePtr, std::string> PowerCutFiles::place(const std::string& path) const {
  return {find(fs::path(path).parent_path().string()), fs::path(path).filename().string()};
}

void PowerCutFiles::leave(const Node& node, const std::string& path) const {
  if (!node.directory) {
    std::ofstream(path, std::ios::binary) << contents_left(node);
    return;
  }
  fs::create_directories(path);
  for (const auto& [name, inner] : names_left(node)) leave(*inner, path + "/" + name);
}

std::string PowerCutFiles::contents_left(const Node& node) const {
  if (!luck_.chance) return luck_.contents ? node.contents : node.synced_contents;
  if (node.contents == node.synced_contents || draw_bool(*luck_.chance, 0.3)) return node.synced_contents;
  return node.contents.substr(
      0, static_cast<std::size_t>(draw_int(*luck_.chance, 0, static_cast<int>(node.contents.size()))));
}

// By chance even a rename may be half done.
std::map<std::string, PowerCutFiles::NodePtr> PowerCutFiles::names_left(const Node& node) const {
  if (!luck_.chance) return luck_.names ? node.names : node.synced_names;
  std::map<std::string, NodePtr> left, all = node.names;
  all.insert(node.synced_names.begin(), node.synced_names.end());
  for (const auto& entry : all) {
    const auto& from = draw_bool(*luck_.chance, 0.5) ? node.names : node.synced_names;
    if (const auto found = from.find(entry.first); found != from.end()) left.insert(*found);
  }
  return left;
}

void PowerCutFiles::count() {
  if (calls_++ == at_) leave(*disk_, to_);
}

int PowerCutFiles::open(const std::string& path, int flags, mode_t mode) {
  count();
  const int file = Files::open(path, flags, mode);
  if (file < 0) return file;
  if (flags & O_CREAT) {
    const auto [parent, name] = place(path);
    auto& node = parent->names[name];
    if (!node) node = std::make_shared<Node>();
    if (flags & O_TRUNC) node->contents.clear();
  }
  open_[file] = find(path);
  return file;
}

ssize_t PowerCutFiles::write(int file, const void* data, std::size_t bytes) {
  count();
  const ssize_t written = Files::write(file, data, bytes);
  if (written > 0)
    open_.at(file)->contents.append(static_cast<const char*>(data), static_cast<std::size_t>(written));
  return written;
}

int PowerCutFiles::fsync(int file) {
  count();
  Node& node = *open_.at(file);
  node.synced_contents = node.contents;
  node.synced_names = node.names;
  return 0;  // the account stands for the disk
}

int PowerCutFiles::close(int file) {
  count();
  open_.erase(file);
  return Files::close(file);
}

int PowerCutFiles::mkdir(const std::string& path) {
  count();
  const int result = Files::mkdir(path);
  if (result != 0) return result;
  const auto [parent, name] = place(path);
  parent->names[name] = std::make_shared<Node>();
  parent->names[name]->directory = true;
  return result;
}

int PowerCutFiles::rename(const std::string& from, const std::string& to) {
  count();
  const int result = Files::rename(from, to);
  if (result != 0) return result;
  const auto [old_parent, old_name] = place(from);
  const auto [parent, name] = place(to);
  parent->names[name] = old_parent->names.at(old_name);
  old_parent->names.erase(old_name);
  return result;
}

int PowerCutFiles::unlink(const std::string& path) {
  count();
  const auto [parent, name] = place(path);
  const int result = Files::unlink(path);
  if (result == 0) parent->names.erase(name);
  return result;
}

int PowerCutFiles::rmdir(const std::string& path) {
  count();
  const auto [parent, name] = place(path);
  const int result = Files::rmdir(path);
  if (result == 0) parent->names.erase(name);
  return result;
}

}  // namespace tandem::testing
