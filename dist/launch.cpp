#include <tandem/dist/launch.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* needs = nullptr;  // set in the processes that the launcher starts, but not in a batch script
};
constexpr Names kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                 "OMPI_COMM_WORLD_LOCAL_SIZE"},
                                {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                                {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, "SLURM_STEP_ID"}};

int number(const char* name, const char* text) {
  int value = 0;
  const char* end = text + std::strlen(text);
  if (const auto [rest, code] = std::from_chars(text, end, value);
      code != std::errc{} || rest != end || value < 0)
    throw Error(fmt::format("environment variable {}='{}' is not a number", name, text));
  return value;
}

// Without this, each process would train alone.
void refuse_torchrun(const std::function<const char*(const char*)>& get) {
  const char *rank = get("RANK"), *size = get("WORLD_SIZE");
  if (!rank || !size || std::strcmp(size, "1") == 0) return;
  throw Error(fmt::format(
      "environment: RANK={} and WORLD_SIZE={} are torchrun's, whose processes Tandem cannot connect; start the "
      "ranks with mpirun or srun, or unset RANK",
      rank, size));
}

}  // namespace

LaunchEnvironment launch_environment(const std::function<const char*(const char*)>& get) {
  for (const Names& names : kLaunchers) {
    const char* rank = get(names.rank);
    const char* size = get(names.size);
    if (!rank || !size || (names.needs && !get(names.needs))) continue;
    LaunchEnvironment found{true, number(names.rank, rank), number(names.size, size)};
    if (found.rank >= found.size)
      throw Error(fmt::format("environment: {}={} is not below {}={}", names.rank, rank, names.size, size));
    if (const char* local = get(names.local_rank)) found.local_rank = number(names.local_rank, local);
    const char* const local_size = names.local_size ? get(names.local_size) : nullptr;
    found.local_size = local_size ? number(names.local_size, local_size) : 0;
    return found;
  }
  refuse_torchrun(get);
  return {};
}

LaunchEnvironment launch_environment() {
  return launch_environment([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace tandem::engine
