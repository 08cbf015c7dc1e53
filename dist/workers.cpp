#include <tandem/dist/workers.h>

#include <algorithm>
#include <exception>
#include <system_error>

namespace tandem::engine {

struct Workers::Task {
  void (*part)(const void*);
  const void* context;
  int running = 0;  // helpers that have begun and not ended
  std::exception_ptr error{};
};

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& helper : helpers_) helper->wake.notify_one();
  }
  for (const auto& helper : helpers_) helper->thread.join();
}

void Workers::reserve(int threads) {
  static const int most = std::max(16, static_cast<int>(std::thread::hardware_concurrency()));
  const int helpers = std::min(threads, most) - 1;
  if (asked_.load(std::memory_order_acquire) >= helpers) return;
  const std::lock_guard lock(mutex_);
  helpers_.reserve(static_cast<std::size_t>(helpers));
  while (static_cast<int>(helpers_.size()) < helpers) {
    auto helper = std::make_unique<Helper>();
    try {
      helper->thread = std::thread([this, h = helper.get()] { work(*h); });
    } catch (const std::system_error&) {
      break;
    }
    helpers_.push_back(std::move(helper));
  }
  if (asked_ < helpers) asked_.store(helpers, std::memory_order_release);
}

void Workers::work(Helper& helper) {
  std::unique_lock lock(mutex_);
  for (;;) {
    helper.wake.wait(lock, [&] { return helper.task || stop_; });
    if (stop_) return;
    Task& task = *helper.task;
    helper.begun = true;
    ++task.running;
    lock.unlock();
    std::exception_ptr error;
    try {
      task.part(task.context);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !task.error) task.error = error;
    helper.task = nullptr;
    helper.begun = false;
    if (--task.running == 0) ended_.notify_all();
  }
}

void Workers::run(int threads, void (*part)(const void*), const void* context) {
  Task task{part, context};
  {
    const std::lock_guard lock(mutex_);
    int missing = threads - 1;
    for (const auto& helper : helpers_) {
      if (missing == 0) break;
      if (helper->task) continue;  // of another call
      helper->task = &task;
      helper->wake.notify_one();
      --missing;
    }
  }
  std::exception_ptr error;
  try {
    part(context);
  } catch (...) {
    error = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  for (const auto& helper : helpers_)
    if (helper->task == &task && !helper->begun) helper->task = nullptr;
  ended_.wait(lock, [&] { return task.running == 0; });
  if (!error) error = task.error;
  if (error) std::rethrow_exception(error);
}

}  // namespace tandem::engine
