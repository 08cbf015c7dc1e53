# Everything Tandem is built on, from the distribution's packages (scripts/setup installs them). Afterwards
# TANDEM_OPENMP, TANDEM_ONEDNN and TANDEM_MPI say what is used: wanted, and there.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)  # a header alone; checksums of checkpoints
find_path(EIGEN_INCLUDE Eigen/Dense PATH_SUFFIXES eigen3 REQUIRED)  # headers alone; least squares
mark_as_advanced(XXHASH_INCLUDE EIGEN_INCLUDE)
if(TANDEM_APPS OR TANDEM_TESTS OR TANDEM_BENCH)
  find_package(CLI11 REQUIRED)
  find_package(spdlog REQUIRED)
endif()
if(TANDEM_APPS OR TANDEM_TESTS OR TANDEM_BENCH OR TANDEM_FUZZ)  # toml++ 3.3 or newer, as a header alone; since 3.4 it is toml.hpp
  find_path(TOMLPLUSPLUS_INCLUDE NAMES toml++/toml.hpp toml++/toml.h REQUIRED)
  mark_as_advanced(TOMLPLUSPLUS_INCLUDE)
endif()
if(TANDEM_TESTS)
  find_package(GTest REQUIRED)
endif()

if(TANDEM_OPENMP)
  find_package(OpenMP COMPONENTS CXX QUIET)
  set(TANDEM_OPENMP "${OpenMP_CXX_FOUND}")
endif()
if(NOT TANDEM_OPENMP)
  message(STATUS "Tandem: without OpenMP: kernels of our own use one thread each")
endif()

if(TANDEM_ONEDNN)
  find_package(OneDNN QUIET)
  set(TANDEM_ONEDNN "${OneDNN_FOUND}")
endif()
if(NOT TANDEM_ONEDNN)
  message(STATUS "Tandem: without oneDNN: matrix products and convolutions run on the reference kernels, 10 to 100 times slower")
endif()

if(TANDEM_MPI)
  find_package(MPI COMPONENTS CXX QUIET)
  set(TANDEM_MPI "${MPI_CXX_FOUND}")
endif()
if(NOT TANDEM_MPI)
  message(STATUS "Tandem: without MPI: ranks are threads of one process only (--transport threads)")
endif()
