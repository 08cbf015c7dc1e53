# Builds the project of README's "Your own program", with apps/spiral.cpp as its main.cpp, and runs it:
#   cmake -DSOURCE=<Tandem's sources> -DBUILD=<where Tandem is built> -DFOLDER=<to build in> -DGENERATOR=<of CMake>
#         -DCOMPILER=<of C++> -DFLAGS=<of C++> -DTYPE=<of Tandem's build> -P own_program.cmake
# It must build with Tandem as installed, compile without a warning, and learn; it must need neither GoogleTest, CLI11
# nor spdlog. By FetchContent and add_subdirectory it must configure, and get the library of Tandem's own build: the
# commands that compile the library must be the same there, which takes minutes less than to compile it again.
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

# Returns the commands by which a build compiles the library, with BUILD's paths for those of the build.
function(library_commands folder binaries result)
  file(STRINGS ${folder}/compile_commands.json commands REGEX "\"command\": .*CMakeFiles/tandem\\.dir/")
  list(TRANSFORM commands REPLACE "${folder}/${binaries}" "${BUILD}/")
  list(TRANSFORM commands REPLACE " ${binaries}CMakeFiles/" " CMakeFiles/")
  list(SORT commands)
  set(${result} "${commands}" PARENT_SCOPE)
endfunction()

# Requires that the configured project compiles the library as BUILD does.
function(expect_library_of_build binaries)
  if(NOT TYPE STREQUAL Release OR FLAGS)
    return()  # the project's is a release without sanitizers
  endif()
  library_commands(${FOLDER} ${binaries} theirs)
  library_commands(${BUILD} "" ours)
  list(LENGTH ours files)
  if(files LESS 100 OR NOT theirs STREQUAL ours)
    list(GET ours 0 our_first)
    list(REMOVE_ITEM theirs ${ours})
    list(SUBLIST theirs 0 1 their_first)
    message(FATAL_ERROR "Tandem compiles ${files} files, the first by\n${our_first}\nand as a part of another project also by\n${their_first}")
  endif()
  message("${files} files are compiled as in Tandem's own build")
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
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
run(${CMAKE_COMMAND} --build . --parallel ${cores})
run(./mine)
if(NOT output MATCHES "batch 2000  loss 0\\.0")
  message(FATAL_ERROR "the spirals were not learned:\n${output}")
endif()
message("${output}")
file(REMOVE_RECURSE ${prefix})

string(REPLACE "/path/to/tandem" "${SOURCE}" fetched "${fetched}")
configure("${fetched}")
expect_library_of_build("_deps/tandem-build/")

configure("add_subdirectory(${SOURCE} tandem)")
expect_library_of_build("tandem/")
run(${CMAKE_COMMAND} --build . --target help)
foreach(program train_cifar apps_test bench_step)
  if(output MATCHES "${program}")
    message(FATAL_ERROR "as a part of another project Tandem builds ${program}")
  endif()
endforeach()
file(REMOVE_RECURSE ${FOLDER})
