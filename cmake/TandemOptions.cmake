# Switches and flags. Presets (CMakePresets.json) set these; a plain `cmake -B build` gives a release build.
# What is set here holds for Tandem's own folders, also where Tandem is a part of another project.
option(TANDEM_ONEDNN "Matrix products and convolutions through oneDNN" ON)
option(TANDEM_OPENMP "Teams of threads inside a kernel" ON)
option(TANDEM_MPI "Ranks as MPI processes" ON)
option(TANDEM_APPS "Build the programs" ${PROJECT_IS_TOP_LEVEL})
option(TANDEM_TESTS "Build the tests, and the programs, which some of them run" ${PROJECT_IS_TOP_LEVEL})
option(TANDEM_BENCH "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(TANDEM_INSTALL "Install the library, its headers and the programs" ${PROJECT_IS_TOP_LEVEL})
option(TANDEM_FUZZ "Build fuzzers of all that reads files from outside, with clang (target: fuzz)" OFF)
set(TANDEM_SANITIZE "" CACHE STRING "address, undefined or thread")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

include(GNUInstallDirs)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# No contraction: fused and unfused pointwise chains must agree bit for bit.
add_compile_options(-Wall -Wextra -ffp-contract=off)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(-Wno-unknown-pragmas)  # of `#pragma GCC ivdep`, a hint
endif()
if(TANDEM_SANITIZE)
  # GCC takes some of what a sanitizer adds for uses of uninitialized values (in std::regex).
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -g -O1 -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
  add_compile_definitions(TANDEM_SANITIZED)
endif()

find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers make it wary of macros and dates, which Tandem's own do not depend on.
  # Paths below the base are cached relative to the build, so another checkout finds what this one has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TANDEM_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-fpch-preprocess)
  endif()
endif()
