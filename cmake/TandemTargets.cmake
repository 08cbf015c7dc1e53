# Read once for all files of a target, which name what they use all the same: the presets with sanitizers and
# scripts/tidy do without. Saves a third of the time to compile.
set(TANDEM_COMMON_HEADERS <algorithm> <cmath> <functional> <map> <memory> <set> <string> <vector> <fmt/format.h> <fmt/ranges.h>)

function(tandem_configure_library target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  # Headers are included as <tandem/FOLDER/name.h>: the build tree has a link to each folder and to each header of include/.
  set(links ${PROJECT_BINARY_DIR}/include/tandem)
  file(MAKE_DIRECTORY ${links})
  foreach(folder ${TANDEM_FOLDERS})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${links}/${folder} SYMBOLIC)
  endforeach()
  foreach(header tandem.h engine.h)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/include/${header} ${links}/${header} SYMBOLIC)
  endforeach()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(${target} SYSTEM PRIVATE ${XXHASH_INCLUDE} ${EIGEN_INCLUDE})
  if(NOT PROJECT_IS_TOP_LEVEL)
    set_target_properties(${target} PROPERTIES SYSTEM ON)  # a user's warning flags are for the user's code
  endif()
  target_link_libraries(${target} PRIVATE fmt::fmt $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> PUBLIC Threads::Threads)
  if(TANDEM_OPENMP)
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
    target_compile_definitions(${target} PRIVATE TANDEM_HAS_OPENMP)
  endif()
  if(TANDEM_ONEDNN)
    target_link_libraries(${target} PRIVATE OneDNN::onednn)
  endif()
  if(TANDEM_MPI)
    target_link_libraries(${target} PRIVATE MPI::MPI_CXX)
    target_compile_definitions(${target} PRIVATE TANDEM_HAS_MPI)
  endif()
  target_precompile_headers(${target} PRIVATE ${TANDEM_COMMON_HEADERS})
endfunction()

# tandem_sources(a.cpp b.cpp): files of the calling folder, added to the library.
function(tandem_sources)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  target_sources(tandem PRIVATE ${files})
endfunction()

# tandem_app(name a.cpp ...): a program in build/<preset>/bin.
function(tandem_app name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE tandem fmt::fmt nlohmann_json::nlohmann_json)
endfunction()

# tandem_test(name a.cpp ...): a GoogleTest program. Its ctest entry has the label `quick` and runs the tests that
# tandem_test_part() does not take.
function(tandem_test name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE test_support GTest::gtest_main nlohmann_json::nlohmann_json)
  target_precompile_headers(${name} REUSE_FROM test_support)
  set_property(TARGET ${name} PROPERTY TEST_PARTS "")
  add_test(NAME ${name} COMMAND ${name} "--gtest_filter=-$<JOIN:$<TARGET_PROPERTY:${name},TEST_PARTS>,:>")
  tandem_test_properties(${name} quick)
endfunction()

# tandem_test_part(program part label pattern ...): a ctest entry `program.part` with the label `quick` or `slow` for the
# tests of a program that match a pattern of GoogleTest's. No test may match two parts.
function(tandem_test_part program part label)
  set_property(TARGET ${program} APPEND PROPERTY TEST_PARTS ${ARGN})
  list(JOIN ARGN ":" filter)
  add_test(NAME ${program}.${part} COMMAND ${program} --gtest_filter=${filter})
  tandem_test_properties(${program}.${part} ${label})
endfunction()

function(tandem_test_properties entry label)
  set(timeout 1800)  # a busy machine takes three times as long as an idle one
  if(TANDEM_SANITIZE)
    set(timeout 3600)
  endif()
  set_tests_properties(${entry} PROPERTIES TIMEOUT ${timeout} LABELS ${label} ENVIRONMENT "GOMP_SPINCOUNT=1000"  # core/base/team.h
                       FAIL_REGULAR_EXPRESSION "Running 0 tests")
endfunction()

# tandem_mpi_entries(entry ...): these ctest entries run mpirun. Open MPI never frees what it allocates once.
function(tandem_mpi_entries)
  set_tests_properties(${ARGN} PROPERTIES ENVIRONMENT "GOMP_SPINCOUNT=1000;ASAN_OPTIONS=detect_leaks=0")
endfunction()

# tandem_mpi_test(name a.cpp ...): a program with a main() of its own that mpirun starts, with 2, 3, and 4 ranks.
function(tandem_mpi_test name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE test_support)
  target_precompile_headers(${name} REUSE_FROM test_support)
  foreach(ranks 2 3 4)
    add_test(NAME ${name}_${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} ${TANDEM_MPIRUN_FLAGS} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}_${ranks} PROPERTIES TIMEOUT 300 PROCESSORS ${ranks} LABELS quick)
    tandem_mpi_entries(${name}_${ranks})
  endforeach()
endfunction()

# tandem_brief_sources(a.cpp ...): files of the library that run once, at the beginning or the end of a program, and
# compile slowly. They are optimized less.
function(tandem_brief_sources)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  set_source_files_properties(${files} DIRECTORY ${Tandem_SOURCE_DIR} PROPERTIES
                              COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
endfunction()
