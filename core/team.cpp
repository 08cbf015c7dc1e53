#include <tandem/core/team.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#ifdef TANDEM_HAS_OPENMP
#include <omp.h>
#endif

namespace tandem {

int default_threads() {
  if (const char* text = std::getenv("TANDEM_THREADS"))
    if (const int n = std::atoi(text); n > 0) return n;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return 1;
}

#ifdef TANDEM_HAS_OPENMP
TeamSize::TeamSize(int threads) : outer_(omp_get_max_threads()) { omp_set_num_threads(threads); }
TeamSize::~TeamSize() { omp_set_num_threads(outer_); }

void bound_team_spin(char** argv) {
  constexpr const char* kSpins = "1000";  // of some 40 ns: as long as a sleeper takes to wake
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  if (setenv("GOMP_SPINCOUNT", kSpins, 1) == 0) execv("/proc/self/exe", argv);  // returns only when it fails
}
#else
TeamSize::TeamSize(int) : outer_(1) {}
TeamSize::~TeamSize() = default;
void bound_team_spin(char**) {}
#endif

}  // namespace tandem
