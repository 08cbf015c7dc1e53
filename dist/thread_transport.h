#pragma once
#include <array>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <tandem/dist/abort.h>
#include <tandem/dist/transport.h>

namespace tandem::engine {

/// The messages between threads of one process, and the bells that wake them.
class ThreadPost {
 public:
  /// `abort` must outlive the ThreadPost.
  ThreadPost(int size, AbortFlag& abort);
  ~ThreadPost();

  struct Box;
  Box& box(int from, const Transport::Route& to);
  Doorbell& bell(int rank, std::uint64_t channel);
  void ring_all();
  AbortFlag& abort_flag() { return abort_; }
  int size() const { return size_; }

 private:
  struct Key {
    int from, to;
    std::uint64_t channel;
    Transport::Part part;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  static constexpr std::size_t kBells =
      16;  // per rank, so that the traffic of other channels seldom wakes a lane

  const int size_;
  AbortFlag& abort_;
  std::vector<std::array<Doorbell, kBells>> bells_;
  std::mutex mutex_;  // guards the table; its entries live as long as the post
  std::unordered_map<Key, std::unique_ptr<Box>, KeyHash> boxes_;
};

/// Returns the Transport of one rank. `abort` is called for Transport::abort; `owner` keeps `post` alive.
std::unique_ptr<Transport> thread_transport(std::shared_ptr<ThreadPost> post, int rank,
                                            std::function<void(const std::string&)> abort);

}  // namespace tandem::engine
