# Builds the project of README's "Your own program", with apps/spiral.cpp as its main.cpp, and runs it:
#   cmake -DSOURCE=<Tandem's sources> -DBUILD=<where Tandem is built> -DFOLDER=<to build in> -DGENERATOR=<of CMake>
#         -DCOMPILER=<of C++> -DFLAGS=<of C++> -P own_program.cmake
# It must build with Tandem as installed, configure by FetchContent, and build by add_subdirectory; need neither
# GoogleTest, CLI11 nor spdlog, compile without a warning, and learn. FOLDER is as deep as Tandem's own build, so that ccache knows the library's files from there.
file(READ ${SOURCE}/README.md readme)
if(NOT readme MATCHES "\n## Your own program\n[^#]*```cmake\n([^`]*)```[^#]*```cmake\n([^`]*)```[^#]*```cmake\n([^`]*)```")
  message(FATAL_ERROR "README.md has no section 'Your own program' with three blocks of CMake")
endif()
set(subdirectory "add_subdirectory(tandem)")
set(fetched "${CMAKE_MATCH_2}")
set(installed "${CMAKE_MATCH_3}")
set(project "${CMAKE_MATCH_1}
  get_target_property(real Tandem::tandem ALIASED_TARGET)
  if(real)
    set_target_properties(${real} PROPERTIES SYSTEM OFF)  # warnings in Tandem's headers show
  else()
    set_target_properties(mine PROPERTIES NO_SYSTEM_FROM_IMPORTED ON)
  endif()
  target_compile_options(mine PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Werror)")
string(FIND "${project}" "${subdirectory}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "README.md: the first block of 'Your own program' lacks ${subdirectory}")
endif()

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${FOLDER} OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command} in ${FOLDER} ended with ${status}:\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

function(configure use_tandem)
  file(REMOVE_RECURSE ${FOLDER})
  file(MAKE_DIRECTORY ${FOLDER})
  string(REPLACE "${subdirectory}" "${use_tandem}" lists "${project}")
  file(WRITE ${FOLDER}/CMakeLists.txt "${lists}")
  file(COPY_FILE ${SOURCE}/apps/spiral.cpp ${FOLDER}/main.cpp)
  run(${CMAKE_COMMAND} . -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER} ${ARGN}
      -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON -DCMAKE_DISABLE_FIND_PACKAGE_spdlog=ON)
endfunction()

function(build_and_learn)
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  run(${CMAKE_COMMAND} --build . --parallel ${cores})
  run(./mine)
  if(NOT output MATCHES "batch 2000  loss 0\\.0")
    message(FATAL_ERROR "the spirals were not learned:\n${output}")
  endif()
  message("${output}")
endfunction()

set(prefix ${FOLDER}.installed)
file(REMOVE_RECURSE ${prefix})
file(MAKE_DIRECTORY ${FOLDER})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})

# The compiler names each header that the front door includes: these are the installed ones, and no others.
run(${COMPILER} -std=c++20 -M -I ${prefix}/include -include tandem/tandem.h -include tandem/engine.h -x c++ /dev/null)
string(REGEX MATCHALL "${prefix}/include/tandem/[^ \n\\]+" needed "${output}")
list(REMOVE_DUPLICATES needed)
file(GLOB_RECURSE installed_headers ${prefix}/include/tandem/*)
list(SORT needed)
list(SORT installed_headers)
if(NOT needed STREQUAL installed_headers)
  message(FATAL_ERROR "tandem.h and engine.h include\n${needed}\nbut these headers are installed:\n${installed_headers}")
endif()
configure("${installed}" -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_FLAGS=${FLAGS})
build_and_learn()
file(REMOVE_RECURSE ${prefix})

string(REPLACE "/path/to/tandem" "${SOURCE}" fetched "${fetched}")
configure("${fetched}")

configure("add_subdirectory(${SOURCE} tandem)")
build_and_learn()
if(EXISTS ${FOLDER}/tandem/bin)
  message(FATAL_ERROR "as a part of another project Tandem builds programs of its own: ${FOLDER}/tandem/bin")
endif()
file(REMOVE_RECURSE ${FOLDER})
