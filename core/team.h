#pragma once

namespace tandem {

/// Threads of the default team: TANDEM_THREADS of the environment, else the cores this process may use.
/// Throws Error where that is no number from 1 to 1024.
int default_threads();

/// Sets the OpenMP team size of the calling thread while it lives. Primitives are created and run
/// under the same size.
class TeamSize {
 public:
  explicit TeamSize(int threads);
  ~TeamSize();
  TeamSize(const TeamSize&) = delete;
  TeamSize& operator=(const TeamSize&) = delete;

 private:
  int outer_;
};

/// To be called first in `main`. A team that waits for its slowest thread, or for work, spins; libgomp does
/// so for milliseconds, which takes the core from whoever else needs it, the slowest thread included. This
/// bounds the spin to about what waking a sleeper costs. libgomp reads such settings once, before `main`, so
/// this starts the program again with GOMP_SPINCOUNT set; it does nothing where that or OMP_WAIT_POLICY is
/// set already, or without OpenMP.
void bound_team_spin(char** argv);

/// For a thread that works little and mostly waits: asks the kernel for short turns, in exchange for which it
/// gets the core soon after it is woken, also where others compute. Its share of the core stays the same.
/// Does nothing where the kernel (Linux before 6.12) knows no such thing.
void prefer_short_turns();

}  // namespace tandem
