# Programs without a model: schedules, proof, placement, simulation, lanes.
foreach(name happens_before_test schedule_test verify_test sim_test placement_test program_json_test progress_test)
  tandem_test(${name} ${name}.cpp)
endforeach()
tandem_test(cpu_backend_test cpu_backend_test.cpp allocations.cpp)
