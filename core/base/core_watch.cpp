#include <tandem/core/base/core_watch.h>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/team.h>

namespace tandem {
namespace {
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr nanoseconds kStuck = 10us;  // without a core while the watching core is idle
constexpr nanoseconds kRan = 1us;     // a thread that ran for less since the last look did not run
constexpr auto kPause = 10ms;         // between looks
constexpr nanoseconds kVigil = 100ms;
// A thread of lowest priority that has computed beside others waits for its next turn, even to end, 340 times
// as long as it computed. So a watch computes for at most kTurn at a time, and then sleeps.
constexpr nanoseconds kTurn = 100us, kLostCore = 30us;
constexpr auto kPauseInVigil = 1ms;

std::atomic<int> watches = 0;  // of this process

// Does nothing if the thread has ended: its number may be that of another process's thread by then.
bool let_run_on(pid_t thread, const cpu_set_t& cores) {
  return tgkill(getpid(), thread, 0) == 0 && sched_setaffinity(thread, sizeof cores, &cores) == 0;
}
bool bind(pid_t thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  return let_run_on(thread, set);
}

// Returns the core on whose queue a thread of this process is if it runs or waits to run; -1 if it sleeps.
// Allocates nothing.
int core_if_runnable(pid_t thread) {
  std::array<char, 64> name{};
  fmt::format_to_n(name.data(), name.size() - 1, "/proc/self/task/{}/stat", thread);
  std::array<char, 512> text{};
  const int file = ::open(name.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const ssize_t size = ::read(file, text.data(), text.size());
  ::close(file);
  const std::string_view line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  std::size_t at = line.rfind(')') + 2;  // of field 3; field 2 is a name in parentheses
  if (at >= line.size() || line[at] != 'R') return -1;
  for (int field = 3; field < 39 && at != line.npos; ++field) at = line.find(' ', at + 1);
  int core = -1;
  if (at != line.npos) std::from_chars(line.data() + at + 1, line.data() + line.size(), core);
  return core;
}
}  // namespace

class CoreWatch::Team {
 public:
  /// `cores` are as many as the threads.
  Team(const std::vector<TeamThread>& threads, const cpu_set_t& cores);
  void end();
  /// Watches the core with this position among the cores until the end, on the calling thread. `before` has
  /// room for one value per member.
  void watch(std::size_t position, std::vector<nanoseconds> before) noexcept;

 private:
  struct Member {
    pid_t thread = 0;
    clockid_t clock{};          // of its time on a core
    std::atomic<int> core = 0;  // its own one while the members are bound
  };
  struct Watcher {
    std::atomic<pid_t> thread = 0;  // 0: not yet
    int core = 0;
  };
  static nanoseconds time_on_core(const Member& member);
  bool is_bound_from_outside();
  void look(int core, std::vector<nanoseconds>& before);
  void give(std::size_t stuck, int core);
  void free();

  const cpu_set_t cores_;
  std::vector<Member> members_;
  std::vector<Watcher> watchers_;
  std::mutex mutex_;  // of changes of their cores; held for nanoseconds, since its holder may lose its core
  std::atomic<bool> bound_ = false, bound_from_outside_ = false, ended_ = false;
  std::atomic<Clock::time_point> found_ = Clock::time_point();
};

CoreWatch::Team::Team(const std::vector<TeamThread>& threads, const cpu_set_t& cores)
    : cores_(cores), members_(threads.size()), watchers_(threads.size()) {
  int core = 0;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    while (!CPU_ISSET(static_cast<std::size_t>(core), &cores)) ++core;
    members_[i].thread = threads[i].id;
    members_[i].core = watchers_[i].core = core++;
    pthread_getcpuclockid(threads[i].handle, &members_[i].clock);
  }
}

nanoseconds CoreWatch::Team::time_on_core(const Member& member) {
  timespec time{};
  clock_gettime(member.clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

// `taskset -ap` binds all threads of a process, one after the other: also those that watch, which nothing
// else moves. Then the watch ends. Its last act is to let the members run where that wants them, since it may
// have moved one in the meantime.
bool CoreWatch::Team::is_bound_from_outside() {
  for (const Watcher& watcher : watchers_) {
    cpu_set_t set;
    if (watcher.thread == 0 || sched_getaffinity(watcher.thread, sizeof set, &set) != 0 ||
        (CPU_COUNT(&set) == 1 && CPU_ISSET(static_cast<std::size_t>(watcher.core), &set)))
      continue;
    if (!bound_from_outside_.exchange(true))
      for (const Member& member : members_) let_run_on(member.thread, set);
    ended_ = true;
  }
  return bound_from_outside_;
}

void CoreWatch::Team::free() {
  if (is_bound_from_outside()) return;
  for (const Member& member : members_) let_run_on(member.thread, cores_);
}

void CoreWatch::Team::end() {
  ended_ = true;
  bound_ = false;
  free();
}

void CoreWatch::Team::watch(std::size_t position, std::vector<nanoseconds> before) noexcept {
  const int core = watchers_[position].core;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // a handler would have to wait for an idle core
  const sched_param none{};
  if (!bind(gettid(), core) || sched_setscheduler(0, SCHED_IDLE, &none) != 0) return;
  watchers_[position].thread = gettid();
  auto turn = Clock::now(), last = turn;  // the begin of this turn on the core, and the last look
  while (!ended_) {
    if (watches == 1) look(core, before);
    const auto now = Clock::now();
    if (now - std::exchange(last, now) > kLostCore) turn = now;
    const bool is_vigil = now - found_.load() < kVigil;
    if (is_vigil && now - turn < kTurn) continue;
    if (!is_vigil && bound_.exchange(false)) free();
    std::this_thread::sleep_for(is_vigil ? kPauseInVigil : kPause);
    turn = last = Clock::now();
  }
}

// Looks once. The core must be idle all the while.
void CoreWatch::Team::look(int core, std::vector<nanoseconds>& before) {
  std::ranges::transform(members_, before.begin(), time_on_core);
  const auto start = Clock::now();
  auto now = start;
  while (now - start < kStuck) now = Clock::now();
  if (now - start > 2 * kStuck) return;  // another thread had the core
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (time_on_core(members_[i]) - before[i] > kRan) continue;
    if (const int other = core_if_runnable(members_[i].thread); other >= 0 && other != core)
      return give(i, core);
  }
}

// Thread `stuck` goes to `core`, and the thread whose core that is to the core of `stuck`. Another watching
// thread, or the end, can free the members in between; then this thread, which comes last, does so again.
void CoreWatch::Team::give(std::size_t stuck, int core) {
  if (is_bound_from_outside()) return;
  {
    const std::lock_guard lock(mutex_);
    const int left = members_[stuck].core;
    for (Member& member : members_)
      if (member.core == core) member.core = left;
    members_[stuck].core = core;
  }
  found_ = Clock::now();
  bound_ = true;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (i != stuck) bind(members_[i].thread, members_[i].core);
  bind(members_[stuck].thread, members_[stuck].core);  // the last one, since it takes this thread's core
  if (!bound_) free();
}

CoreWatch::CoreWatch(const std::vector<TeamThread>& threads) {
  cpu_set_t cores;
  if (threads.size() != 2 || cores_by_quota() > 0 || getpriority(PRIO_PROCESS, 0) > 0 ||
      sched_getaffinity(0, sizeof cores, &cores) != 0 ||
      static_cast<std::size_t>(CPU_COUNT(&cores)) != threads.size())
    return;
  team_ = std::make_shared<Team>(threads, cores);
  ++watches;
  try {
    for (std::size_t i = 0; i < threads.size(); ++i)
      std::thread(&Team::watch, team_, i, std::vector<nanoseconds>(threads.size())).detach();
  } catch (const std::exception&) {  // no memory, or no more threads: some cores are not watched
  }
}

CoreWatch::~CoreWatch() {
  if (!team_) return;
  team_->end();
  --watches;
}

}  // namespace tandem
