#include "signal_watch.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/launch.h>

#include "log.h"

namespace tandem::apps {
using namespace engine;
namespace {

// timeout and mpirun send a signal to a process and to its group, so that it comes twice.
constexpr std::chrono::milliseconds kSameSignal{500};

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2})
    sigaddset(&set, signal);  // the last one ends the watch
  struct sigaction now {};
  if (sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
    sigaddset(&set, SIGHUP);  // not under nohup
  return set;
}

// After one rank has reported an error, mpirun ends the others by a signal, which they need not report.
bool one_of_several() {
  try {
    return launch_environment().size > 1;
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace

const char* interruption(int signal) {
  switch (signal) {
    case SIGTERM: return "terminated";
    case SIGUSR1: return "interrupted by SIGUSR1";
    case SIGHUP: return "interrupted by SIGHUP";
    default: return "interrupted";
  }
}

int signal_behind(const std::exception& error) {
  for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP})
    if (std::string_view(error.what()) == interruption(signal)) return signal;
  return 0;
}

SignalWatch::SignalWatch() {
  const sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& e) {
    throw Error(fmt::format("the thread that waits for signals cannot be started: {}", e.what()));
  }
}

SignalWatch::~SignalWatch() {
  closing_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
}

void SignalWatch::work() {
  const sigset_t set = watched();
  std::chrono::steady_clock::time_point first;
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (signal == SIGUSR2) {
      if (closing_) return;
      continue;
    }
    if (signal_ != 0) {
      if (std::chrono::steady_clock::now() - first < kSameSignal) continue;
      if (!one_of_several()) log_error("a second signal: the process ends at once");
      std::_Exit(status_after(signal));
    }
    signal_ = signal;
    first = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (!call_) {
      for (const auto& [owner, f] : before_end_) f();
      if (!one_of_several()) log_error(interruption(signal));
      std::_Exit(status_after(signal));
    }
    try {
      caller_ = std::jthread(call_, signal);  // on its own thread, so that the next signal is handled at once
    } catch (const std::system_error&) {
      call_(signal);  // no thread can start
    }
  }
}

SignalWatch::BeforeEnd::BeforeEnd(SignalWatch& watch, std::function<void()> f) : watch_(watch) {
  const std::lock_guard lock(watch.mutex_);
  watch.before_end_[this] = std::move(f);
}

SignalWatch::BeforeEnd::~BeforeEnd() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.before_end_.erase(this);
}

SignalWatch::During::During(SignalWatch& watch, std::function<void(int)> f) : watch_(watch) {
  const std::lock_guard lock(watch.mutex_);
  watch.call_ = std::move(f);
}

SignalWatch::During::~During() {
  std::jthread caller;  // joined last, after the lock is released
  const std::lock_guard lock(watch_.mutex_);
  watch_.call_ = nullptr;
  caller = std::move(watch_.caller_);
}

}  // namespace tandem::apps
