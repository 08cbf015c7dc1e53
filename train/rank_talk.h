#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include <tandem/core/runtime/comm.h>

namespace tandem {

/// How ranks that are processes decide alike: one of them, the root, decides, or any of them objects. All
/// make the same calls in the same order. Ranks that are threads need no messages: this process decides.
class RankTalk {
 public:
  RankTalk() = default;
  /// `comm` has all ranks, and no other thread uses it during a call; null: ranks are threads.
  explicit RankTalk(engine::Comm* comm, int root = 0) : comm_(comm), root_(root) {}

  /// The rank that decides. For ranks that are threads it is 0.
  int root() const { return comm_ ? root_ : 0; }
  bool is_root() const { return !comm_ || comm_->rank() == root_; }
  /// Gives all ranks the root's bytes.
  void broadcast(void* data, std::int64_t bytes) const;
  /// Return the root's value.
  std::int64_t from_root(std::int64_t value) const;
  std::string from_root(std::string text) const;
  /// Calls f on the root. Returns, on all ranks, the message of the Error that it throws there, or nothing.
  /// Aborted passes.
  std::string on_root(const std::function<void()>& f) const;
  /// Calls f on each rank. Returns, on all ranks, the message of an Error that it throws on any, with the
  /// rank, or nothing. Aborted passes.
  std::string on_all(const std::function<void()>& f) const;

 private:
  engine::Comm* comm_ = nullptr;
  int root_ = 0;
};

/// Returns the message of the Error that f throws, or nothing. Aborted passes: then the run has ended.
std::string message_of(const std::function<void()>& f);

}  // namespace tandem
