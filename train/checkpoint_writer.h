#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <tandem/train/checkpoint_store.h>

namespace tandem {

/// Saves checkpoints on a thread of its own, one at a time, while training goes on.
class CheckpointWriter {
 public:
  /// `failed` is called, on that thread, with what a save threw and its step: training goes on, and older
  /// checkpoints are intact. What `failed` itself throws is lost.
  CheckpointWriter(CheckpointStore store, std::function<void(std::int64_t, const std::string&)> failed);
  /// Waits for the save under way.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the save before, and returns when this one begins. `files` own what they write: a copy of the
  /// state, which lives until it is saved.
  void save(std::int64_t step, std::vector<CheckpointFile> files, std::optional<double> score = {});
  /// Returns when nothing is being saved.
  void wait();

 private:
  struct Job {
    std::int64_t step;
    std::vector<CheckpointFile> files;
    std::optional<double> score;
  };
  void work(const std::stop_token& stop);
  void save(const Job& job) noexcept;
  CheckpointStore store_;
  std::function<void(std::int64_t, const std::string&)> failed_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Job> job_;  // under way, or about to be
  std::jthread thread_;     // last: gone before what it uses
};

}  // namespace tandem
