#include <tandem/core/base/memory.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>

namespace tandem::engine {
namespace {

constexpr auto kUnknown = std::numeric_limits<std::int64_t>::max();

// The number at the beginning of a file, or after `key` in it; kUnknown if there is none.
std::int64_t number_in(const std::string& file, const std::string& key = "") {
  std::ifstream in(file);
  for (std::string word; !key.empty() && word != key;)
    if (!(in >> word)) return kUnknown;
  std::int64_t value = 0;
  return in >> value ? value : kUnknown;
}

// The path of this process's control group (version 2): "/system.slice/job", or "" for the root.
std::string own_group() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("0::/")) return line == "0::/" ? "" : line.substr(3);
  return "";
}

// A name that no other running machine has: that of its boot, or else of the host.
std::string boot_name() {
  std::string name;
  if (std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), name)) return name;
  utsname host{};
  return ::uname(&host) == 0 ? host.nodename : "";
}

}  // namespace

std::vector<MemoryPool> memory_pools() {
  constexpr std::int64_t kKiB = 1024;
  const std::int64_t available = number_in("/proc/meminfo", "MemAvailable:"),
                     swap = number_in("/proc/meminfo", "SwapFree:");
  if (available == kUnknown) return {};
  const std::string machine = boot_name();
  std::vector<MemoryPool> pools{{fnv1a(machine), (available + (swap == kUnknown ? 0 : swap)) * kKiB}};
  for (std::string group = own_group();; group = group.substr(0, group.rfind('/'))) {
    const std::string folder = "/sys/fs/cgroup" + group, at = folder + "/memory.";
    const std::int64_t most = number_in(at + "max"), used = number_in(at + "current"),
                       files = number_in(at + "stat", "inactive_file");
    struct stat status {};
    if (most != kUnknown && used != kUnknown && ::stat(folder.c_str(), &status) == 0)
      pools.push_back({fnv1a(fmt::format("{} {}", machine, status.st_ino)),
                       std::max<std::int64_t>(0, most - used + (files == kUnknown ? 0 : files))});
    if (group.empty()) break;
  }
  rlimit own{};
  if (const std::int64_t used = number_in("/proc/self/status", "VmSize:");
      used != kUnknown && getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    pools.push_back({fnv1a(fmt::format("{} process {}", machine, getpid())),
                     std::max<std::int64_t>(0, static_cast<std::int64_t>(own.rlim_cur) - used * kKiB)});
  return pools;
}

std::int64_t free_memory() {
  std::int64_t free = kUnknown;
  for (const MemoryPool& pool : memory_pools()) free = std::min(free, pool.free);
  return free;
}

void require_memory(const std::string& what, double bytes) {
  const auto free = static_cast<double>(free_memory());
  if (bytes > free)
    throw Error(fmt::format("out of memory: {} take {:.3g} GB, and {:.3g} GB are free", what, bytes / 1e9,
                            free / 1e9));
}

std::shared_ptr<std::byte> allocate(std::int64_t bytes) {
  constexpr std::int64_t kHugePage = 2 << 20;
  if (bytes < 0) throw Error(fmt::format("allocation of {} bytes", bytes));
  const bool huge = bytes >= 2 * kHugePage;  // fewer page lookups: kernels are a few percent faster
  const auto alignment = std::align_val_t{static_cast<std::size_t>(huge ? kHugePage : kAlignment)};
  void* data = ::operator new(static_cast<std::size_t>(std::max(align_up(bytes), kAlignment)), alignment,
                              std::nothrow);
  if (!data)
    throw Error(fmt::format("out of memory: {:.1f} MB were requested, and {:.1f} MB are free",
                            static_cast<double>(bytes) / 1e6, static_cast<double>(free_memory()) / 1e6));
#ifdef MADV_HUGEPAGE
  if (huge) madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a hint, which can be refused
#endif
#ifndef NDEBUG
  poison(data, bytes);
#endif
  return {static_cast<std::byte*>(data), [alignment](std::byte* p) { ::operator delete(p, alignment); }};
}

void poison(void* data, std::int64_t bytes) {
  if (bytes > 0) std::memset(data, 0xff, static_cast<std::size_t>(bytes));
}

}  // namespace tandem::engine
