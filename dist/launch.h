#pragma once
#include <functional>

namespace tandem::engine {

/// How this process was started.
struct LaunchEnvironment {
  bool launched = false;  ///< true: by mpirun, srun or a similar launcher; false: rank 0 of 1
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< index among the ranks of this machine
  int local_size = 1;  ///< how many there are; 0 if the launcher does not tell
};

/// Reads the variables that the launcher set in the environment: Open MPI's OMPI_COMM_WORLD_*, else PMI_*
/// (MPICH, Intel MPI), else srun's SLURM_* (ignored if SLURM_STEP_ID is missing, as in a batch script). Needs
/// no MPI. `get` replaces getenv. Throws Error, naming the variable, if its value is not a number or the rank
/// is not below the size; and if torchrun started the process, which Tandem does not understand.
LaunchEnvironment launch_environment();
LaunchEnvironment launch_environment(const std::function<const char*(const char*)>& get);

}  // namespace tandem::engine
