#include <tandem/dist/workers.h>

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

void Workers::add_helper() {
  auto helper = std::make_unique<Helper>();
  helpers_.reserve(helpers_.size() + 1);
  helper->thread = std::thread([this, h = helper.get()] { work(*h); });
  helpers_.push_back(std::move(helper));
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
    for (std::size_t i = 0; missing > 0; ++i) {
      if (i == helpers_.size()) {
        try {
          add_helper();
        } catch (const std::system_error&) {
          break;  // the machine has no more threads: those that there are do the work
        }
      }
      Helper& helper = *helpers_[i];
      if (helper.task) continue;  // of another call
      helper.task = &task;
      helper.wake.notify_one();
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
