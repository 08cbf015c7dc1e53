#pragma once
#include <pthread.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace tandem {

/// Returns the number of threads of the default team: the environment variable TANDEM_THREADS, else the
/// number of cores that the calling thread can use, or fewer if a container's share of time is smaller
/// (cores_by_quota), or if OpenMP allows fewer (OMP_THREAD_LIMIT).
/// Throws Error if TANDEM_THREADS is not a number from 1 to 1024.
int default_threads();

/// Returns the number of cores on which a process may run, as taskset and launchers set it. 0: the calling
/// thread.
int available_cores(int process = 0);

/// Returns the number of cores whose time a process may use by the limits of its control groups (cpu.max of
/// Linux's version 2, as of containers), rounded up; 0: they set none. `groups` is a process's
/// /proc/PID/cgroup, `mount` the directory of all groups.
int cores_by_quota(const std::string& groups = "/proc/self/cgroup",
                   const std::string& mount = "/sys/fs/cgroup");

/// Sets the OpenMP team size of the calling thread for the object's lifetime, also for ops that run at once.
/// Teams have exactly this size, whatever OMP_DYNAMIC says. Primitives are created and run under the same
/// size.
class TeamSize {
 public:
  /// Throws Error if OpenMP allows fewer threads (OMP_THREAD_LIMIT, OMP_MAX_ACTIVE_LEVELS).
  explicit TeamSize(int threads);
  ~TeamSize();
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;
  /// Returns the size set on the calling thread, or default_threads() if none is set.
  static int current();

 private:
  int outer_;
  int outer_size_;
  bool dynamic_;
};

struct TeamThread {
  pid_t id = 0;
  pthread_t handle{};
};
/// Returns the threads of the calling thread's team, this thread first; starts them if they do not exist yet.
std::vector<TeamThread> threads_of_team();

/// Ends the other threads of the calling thread's team; its next team starts new ones, in some tens of
/// microseconds. Call it before other threads compute for it: libgomp counts all threads of a process, also
/// those that sleep, and if they are more than the cores, every team that waits goes to sleep at once instead
/// of spinning first. Does nothing with other OpenMP libraries, or in a parallel region.
void end_own_team();

/// Starts the program again if OpenMP's settings do not suit lanes; OpenMP reads them once, before `main`.
/// Call it first in `main`. Does nothing without OpenMP.
/// - A team that waits for its slowest thread, or for work, spins. libgomp spins for milliseconds and so
///   takes the core from other threads, the team's slowest included. GOMP_SPINCOUNT is set so that a team
///   spins for about as long as waking a sleeping thread takes, unless it or OMP_WAIT_POLICY is already set.
/// - OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY bind `main` to the first of the cores, and with it every
///   lane's team and default_threads(). They are unset; the process keeps all of the cores that they name.
void prepare_teams(char** argv);

/// Part `part` of `parts` equal parts of some cores, counted from 0.
struct ShareOfCores {
  int part = 0, parts = 1;
};
/// Keeps the calling thread, and the threads that it starts from now on, on a share of the cores that it can
/// use. Parts are runs of core numbers. Does nothing if the cores cannot be divided into equal parts, or if
/// there is one part.
void stay_on(const ShareOfCores& share);

/// Asks the kernel to run the calling thread, which works little and mostly waits, for short turns. In return
/// it gets the core soon after it is woken, even while others compute. Its share of the core stays the same.
/// Does nothing if the kernel does not support this (Linux before 6.12).
void prefer_short_turns();

}  // namespace tandem
