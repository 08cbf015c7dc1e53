#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::engine {

/// Threads of a rank that help the lane of a collective to fold and copy. They sleep between calls, and are
/// no OpenMP team, whose threads would end whenever its size changes. Only `reserve` makes threads and
/// allocates.
class Workers {
 public:
  Workers() = default;
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Makes the threads that a call with `threads` needs, and that are missing: no more than the machine has
  /// cores, or 16. If it starts no more threads, the work is done by those that there are.
  void reserve(int threads);

  /// Calls `part` on the calling thread and on up to `threads` − 1 others, and returns when all have ended.
  /// The parts share out the work among themselves: an other thread that has not begun when the caller's
  /// part ends is not waited for, and does nothing. Several threads can call this at once. Throws what a part
  /// threw.
  template <class F> void run(int threads, const F& part) {
    if (threads <= 1) return part();
    run(
        threads, [](const void* p) { (*static_cast<const F*>(p))(); }, &part);
  }

 private:
  struct Task;
  struct Helper {
    std::condition_variable wake;
    Task* task = nullptr;  // to do, or being done
    bool begun = false;
    std::thread thread;
  };
  void run(int threads, void (*part)(const void*), const void* context);
  void work(Helper& helper);

  std::atomic<int> asked_{0};  // helpers that were made, or could not be
  std::mutex mutex_;           // guards everything below
  std::condition_variable ended_;
  std::vector<std::unique_ptr<Helper>> helpers_;
  bool stop_ = false;
};

}  // namespace tandem::engine
