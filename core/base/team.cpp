#include <tandem/core/base/team.h>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

#ifdef TANDEM_HAS_OPENMP
#include <omp.h>
#endif

namespace tandem {
namespace {
struct KernelSchedAttr {  // sched_setattr(2); libraries before glibc 2.41 do not declare it
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime_ns, deadline_ns, period_ns;
};

thread_local int team_size = 0;  // set by a TeamSize

// Returns the largest team that OpenMP allows this thread.
int most_of_a_team() {
#ifdef TANDEM_HAS_OPENMP
  return omp_get_level() == 0 && omp_get_max_active_levels() < 1 ? 1 : omp_get_thread_limit();
#else
  return std::numeric_limits<int>::max();  // every team is one thread
#endif
}
}  // namespace

int TeamSize::current() { return team_size > 0 ? team_size : default_threads(); }

int default_threads() {
  if (const char* text = std::getenv("TANDEM_THREADS")) {
    constexpr int kMost = 1024;
    const std::string_view given(text);
    int n = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), n);
    if (error != std::errc() || end != given.data() + given.size() || n < 1 || n > kMost)
      throw Error(fmt::format("TANDEM_THREADS='{}': it must be a number from 1 to {}", given, kMost));
    return n;
  }
  static const int quota = cores_by_quota();  // read once: eager ops ask for each launch
  const int cores = available_cores();
  return std::min(quota > 0 ? std::min(cores, quota) : cores, most_of_a_team());
}

std::vector<TeamThread> threads_of_team() {
  std::vector<TeamThread> threads(static_cast<std::size_t>(TeamSize::current()));
#ifdef TANDEM_HAS_OPENMP
#pragma omp parallel for num_threads(static_cast <int>(threads.size())) schedule(static, 1)
#else
  threads.resize(1);
#endif
  for (TeamThread& thread : threads) thread = {gettid(), pthread_self()};
  return threads;
}

// A limit of a group holds for all groups in it.
int cores_by_quota(const std::string& groups, const std::string& mount) {
  namespace fs = std::filesystem;
  std::ifstream in(groups);
  std::string line;
  while (std::getline(in, line) && !line.starts_with("0::/")) {
  }
  if (!line.starts_with("0::/")) return 0;
  int cores = 0;
  for (fs::path group = line.substr(3);; group = group.parent_path()) {
    double quota = 0, period = 0;  // of microseconds; without a limit, the first word is "max"
    if (std::ifstream(fs::path(mount + group.string()) / "cpu.max") >> quota >> period && quota > 0 &&
        period > 0) {
      const int here = static_cast<int>(std::ceil(quota / period));
      cores = cores == 0 ? here : std::min(cores, here);
    }
    if (group == "/") return cores;
  }
}

int available_cores(int process) {
  cpu_set_t set;
  return sched_getaffinity(process, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

void stay_on(const ShareOfCores& share) {
  if (share.parts < 2) return;
  cpu_set_t all, own;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) % share.parts != 0) return;
  const int size = CPU_COUNT(&all) / share.parts;
  CPU_ZERO(&own);
  for (int core = 0, number = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all) && number++ / size == share.part) CPU_SET(core, &own);
  sched_setaffinity(0, sizeof own, &own);
}

void prefer_short_turns() {
  constexpr std::uint64_t kTurn = 100'000;  // nanoseconds, the least that the kernel accepts
  KernelSchedAttr attr{};
  if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0 || attr.policy != SCHED_OTHER) return;
  attr.runtime_ns = kTurn;
  syscall(SYS_sched_setattr, 0, &attr, 0);
}

#ifdef TANDEM_HAS_OPENMP
TeamSize::TeamSize(int threads)
    : outer_(omp_get_max_threads()), outer_size_(team_size), dynamic_(omp_get_dynamic() != 0) {
  if (const int most = most_of_a_team(); threads > most)
    throw Error(fmt::format(
        "a team of {} threads: OMP_THREAD_LIMIT or OMP_MAX_ACTIVE_LEVELS allows OpenMP {}, and kernels would "
        "wait forever for the others; raise the limit or use fewer threads",
        threads, most));
  omp_set_dynamic(0);  // else OpenMP could make a smaller team, and kernels would wait
  omp_set_num_threads(threads);
  team_size = threads;
}
TeamSize::~TeamSize() {
  team_size = outer_size_;
  omp_set_num_threads(outer_);
  omp_set_dynamic(dynamic_ ? 1 : 0);
}

#if defined(__GNUC__) && !defined(__clang__)
void end_own_team() { omp_pause_resource(omp_pause_soft, omp_get_initial_device()); }
#else
void end_own_team() {}
#endif

namespace {
// Lets this thread run on all cores that teams can use, and removes the settings that bind from the
// environment of the program that it starts.
bool unbind() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    for (int id : ids) CPU_SET(static_cast<std::size_t>(id), &cores);
  }
  for (const char* setting : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (unsetenv(setting) != 0) return false;
  return sched_setaffinity(0, sizeof cores, &cores) == 0;
}
}  // namespace

void prepare_teams(char** argv) {
  constexpr const char* kSpins = "1000";  // of about 40 ns: as long as waking a thread takes
  const bool bound = omp_get_proc_bind() != omp_proc_bind_false;
  const bool spins = !std::getenv("GOMP_SPINCOUNT") && !std::getenv("OMP_WAIT_POLICY");
  if (!bound && !spins) return;
  if (bound && !unbind()) return;
  if (spins && setenv("GOMP_SPINCOUNT", kSpins, 1) != 0) return;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  execv(self.c_str(), argv);      // keeps the program's name for ps and pkill;
  execv("/proc/self/exe", argv);  // both return only when they fail
}
#else
TeamSize::TeamSize(int threads)
    : outer_(1), outer_size_(std::exchange(team_size, threads)), dynamic_(false) {}
TeamSize::~TeamSize() { team_size = outer_size_; }
void end_own_team() {}
void prepare_teams(char**) {}
#endif

}  // namespace tandem
