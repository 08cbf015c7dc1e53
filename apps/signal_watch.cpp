#include "signal_watch.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>

namespace tandem::apps {
namespace {

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGUSR2}) sigaddset(&set, signal);  // the last one ends the watch
  return set;
}

}  // namespace

SignalWatch::SignalWatch() {
  const sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { work(); });
}

SignalWatch::~SignalWatch() {
  closing_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
}

void SignalWatch::work() {
  const sigset_t set = watched();
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (signal == SIGUSR2) {
      if (closing_) return;
      continue;
    }
    const std::lock_guard lock(mutex_);
    if (signal_.exchange(signal) != 0 || !call_) std::_Exit(status_after(signal));
    call_(signal);
  }
}

SignalWatch::During::During(SignalWatch& watch, std::function<void(int)> f) : watch_(watch) {
  const std::lock_guard lock(watch.mutex_);
  watch.call_ = std::move(f);
}

SignalWatch::During::~During() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.call_ = nullptr;
}

}  // namespace tandem::apps
