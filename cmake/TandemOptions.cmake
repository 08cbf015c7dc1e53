# Switches and flags. Presets (CMakePresets.json) set these; a plain `cmake -B build` gives a release build.
option(TANDEM_ONEDNN "Matrix products and convolutions through oneDNN" ON)
option(TANDEM_OPENMP "Teams of threads inside a kernel" ON)
option(TANDEM_MPI "Ranks as MPI processes" ON)
option(TANDEM_TESTS "Build the tests" ON)
option(TANDEM_BENCH "Build the benchmarks" ON)
set(TANDEM_SANITIZE "" CACHE STRING "address, undefined or thread")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# No contraction: fused and unfused pointwise chains must agree bit for bit.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(-Wno-unknown-pragmas)  # of `#pragma GCC ivdep`, a hint
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
if(TANDEM_SANITIZE)
  # GCC takes some of what a sanitizer adds for uses of uninitialised values (in std::regex).
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -g -O1 -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
  add_compile_definitions(TANDEM_SANITIZED)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
