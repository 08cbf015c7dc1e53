# Programs without a model: schedules, proof, placement, simulation, lanes.
add_library(program_test_support STATIC
  seed.cpp schedule_builder.cpp schedules.cpp schedules_one_device.cpp random_programs.cpp test_op.cpp program_run.cpp)
target_link_libraries(program_test_support PUBLIC tandem fmt::fmt)
foreach(name happens_before_test schedule_test verify_test sim_test placement_test program_json_test progress_test)
  tandem_test(${name} ${name}.cpp)
  target_link_libraries(${name} PRIVATE program_test_support)
endforeach()
tandem_test(cpu_backend_test cpu_backend_test.cpp allocations.cpp)
target_link_libraries(cpu_backend_test PRIVATE program_test_support)
