tandem_test(dist_test dist_test.cpp allocations.cpp)
tandem_test(throttle_test throttle_test.cpp)
tandem_test(collective_test collective_test.cpp)

if(TANDEM_MPI)
  set(TANDEM_MPIRUN_FLAGS --allow-run-as-root --oversubscribe CACHE STRING
      "Flags of mpirun in the tests: Open MPI's, to run as root and with more ranks than cores")
  add_executable(dist_mpi_test dist_mpi_test.cpp allocations.cpp)
  target_link_libraries(dist_mpi_test PRIVATE test_support)
  foreach(ranks 2 4)
    add_test(NAME dist_mpi_test_${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} ${TANDEM_MPIRUN_FLAGS} ${MPIEXEC_NUMPROC_FLAG} ${ranks}
                     $<TARGET_FILE:dist_mpi_test>)
    set_tests_properties(dist_mpi_test_${ranks} PROPERTIES TIMEOUT 300 PROCESSORS ${ranks})
  endforeach()

  tandem_test(dist_mpi_end_test dist_mpi_end_test.cpp)
  # Open MPI never frees what it allocates once.
  set_tests_properties(dist_mpi_test_2 dist_mpi_test_4 dist_mpi_end_test PROPERTIES
    ENVIRONMENT "GOMP_SPINCOUNT=1000;ASAN_OPTIONS=detect_leaks=0")
  add_dependencies(dist_mpi_end_test dist_mpi_test)
  list(JOIN TANDEM_MPIRUN_FLAGS " " mpirun_flags)
  target_compile_definitions(dist_mpi_end_test PRIVATE
    TANDEM_MPIRUN="${MPIEXEC_EXECUTABLE} ${mpirun_flags}" TANDEM_MPI_PROGRAM="$<TARGET_FILE:dist_mpi_test>")
endif()
