#pragma once
#include <functional>

namespace tandem::engine {

/// How this process was started.
struct LaunchEnvironment {
  bool launched = false;  ///< by mpirun, srun or the like; otherwise rank 0 of 1
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among the ranks of this machine
};

/// What the launcher put into the environment: Open MPI's OMPI_COMM_WORLD_*, PMI_* (MPICH, Intel MPI), or
/// SLURM_* of srun (in a batch script, which is no step of its own, they count for nothing), looked for in
/// this order. Needs no MPI. `get` stands for getenv. Throws Error, naming the variable, where its value is
/// no number or the rank is not below the size.
LaunchEnvironment launch_environment();
LaunchEnvironment launch_environment(const std::function<const char*(const char*)>& get);

}  // namespace tandem::engine
