#include <tandem/train/checkpoint_writer.h>

#include <sys/resource.h>
#include <unistd.h>

#include <exception>

namespace tandem {
namespace {

// Lowers the priority of this thread, so that copying and checksums yield to computing threads. (On Linux,
// setpriority changes one thread.)
void give_way() {
  constexpr int kNicer = 10;
  const auto self = static_cast<id_t>(gettid());
  setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + kNicer);
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointStore store,
                                   std::function<void(std::int64_t, const std::string&)> failed)
    : store_(std::move(store)),
      failed_(std::move(failed)),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

CheckpointWriter::~CheckpointWriter() { wait(); }

void CheckpointWriter::save(std::int64_t step, std::vector<CheckpointFile> files,
                            std::optional<double> score) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !job_; });
  job_ = Job{step, std::move(files), score};
  changed_.notify_all();
}

void CheckpointWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !job_; });
}

void CheckpointWriter::save(const Job& job) noexcept {
  try {
    try {
      store_.save(job.step, job.files, job.score);
    } catch (const std::exception& e) {
      failed_(job.step, e.what());
    }
  } catch (...) {  // no memory even for a message: the missing checkpoint shows the failure
  }
}

void CheckpointWriter::work(const std::stop_token& stop) {
  give_way();
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return job_.has_value(); })) {
    lock.unlock();
    save(*job_);
    job_->files.clear();  // frees the copy of the state without holding the lock
    lock.lock();
    job_.reset();
    changed_.notify_all();
  }
}

}  // namespace tandem
