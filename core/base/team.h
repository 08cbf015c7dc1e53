#pragma once

namespace tandem {

/// Threads of the default team: TANDEM_THREADS of the environment, else the cores this process may use, or
/// fewer where OpenMP may not have as many (OMP_THREAD_LIMIT).
/// Throws Error where that is no number from 1 to 1024.
int default_threads();

/// Sets the OpenMP team size of the calling thread while it lives; teams have exactly it, whatever
/// OMP_DYNAMIC says. Primitives are created and run under the same size.
class TeamSize {
 public:
  /// Throws Error where OpenMP may not have as many: OMP_THREAD_LIMIT, OMP_MAX_ACTIVE_LEVELS.
  explicit TeamSize(int threads);
  ~TeamSize();
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  int outer_;
  bool dynamic_;
};

/// To be called first in `main`: starts the program again where OpenMP, which reads its settings once, before
/// `main`, was told what does not suit lanes. Does nothing without OpenMP.
/// - A team that waits for its slowest thread, or for work, spins; libgomp does so for milliseconds, which
/// takes
///   the core from whoever else needs it, the slowest thread included. GOMP_SPINCOUNT is set so that it spins
///   for about as long as waking a sleeper takes, unless that or OMP_WAIT_POLICY is set already.
/// - OMP_PROC_BIND, OMP_PLACES and GOMP_CPU_AFFINITY bind `main` to the first of the cores, and with it every
///   lane's team and default_threads(): they are unset. The cores themselves stay those that were given.
void prepare_teams(char** argv);

/// For a thread that works little and mostly waits: asks the kernel for short turns, in exchange for which it
/// gets the core soon after it is woken, also where others compute. Its share of the core stays the same.
/// Does nothing where the kernel (Linux before 6.12) knows no such thing.
void prefer_short_turns();

}  // namespace tandem
