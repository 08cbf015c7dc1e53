# Headers are included as <tandem/FOLDER/name.h>: the build tree holds one link a folder.
set(TANDEM_INCLUDE ${CMAKE_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${TANDEM_INCLUDE}/tandem)
foreach(folder core ops autograd nn dist pipeline memory plan datasets)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${TANDEM_INCLUDE}/tandem/${folder} SYMBOLIC)
endforeach()
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/apps/tandem.h ${TANDEM_INCLUDE}/tandem/tandem.h SYMBOLIC)

function(tandem_configure_library target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${TANDEM_INCLUDE}>)
  target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json PUBLIC Threads::Threads)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
    target_compile_definitions(${target} PRIVATE TANDEM_HAS_OPENMP)
  endif()
  if(TARGET oneDNN::oneDNN)
    target_link_libraries(${target} PRIVATE oneDNN::oneDNN)
    target_compile_definitions(${target} PRIVATE TANDEM_HAS_ONEDNN)
  endif()
  if(MPI_CXX_FOUND)
    target_link_libraries(${target} PRIVATE MPI::MPI_CXX)
    target_compile_definitions(${target} PRIVATE TANDEM_HAS_MPI)
  endif()
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

# tandem_test(name a.cpp ...): a GoogleTest program, one ctest entry a test case.
function(tandem_test name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE tandem GTest::gtest GTest::gtest_main fmt::fmt nlohmann_json::nlohmann_json)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 ENVIRONMENT "GOMP_SPINCOUNT=1000")  # see core/team.h
endfunction()
