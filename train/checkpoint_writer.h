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

/// Saves checkpoints on its own thread, one at a time, while training continues.
class CheckpointWriter {
 public:
  /// If a save throws, that thread calls `failed` with its step and the message; training continues, and
  /// older checkpoints are intact. Exceptions from `failed` are ignored.
  CheckpointWriter(CheckpointStore store, std::function<void(std::int64_t, const std::string&)> failed);
  /// Waits for the current save.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Waits for the previous save, and returns when this one begins. `files` must own what they write, such as
  /// a copy of the state; it lives until it is saved.
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
  std::optional<Job> job_;  // the current or next save
  std::jthread thread_;     // declared last: it ends before the members that it uses
};

}  // namespace tandem
