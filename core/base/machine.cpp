#include <tandem/core/base/machine.h>

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

// As Linux tells it: "model name\t: AMD EPYC 7763".
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname system{};
  uname(&system);
  return fmt::format("{} processor", system.machine);
}

}  // namespace

std::string machine_name() {
  return fmt::format("{}, {}", processor(), counted(sysconf(_SC_NPROCESSORS_ONLN), "core"));
}

}  // namespace tandem::engine
