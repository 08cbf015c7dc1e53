tandem_test(op_cases_test
  op_cases_test.cpp op_case_run.cpp op_case_batch.cpp op_case_checks.cpp op_case_bf16.cpp op_case_arguments.cpp allocations.cpp
  op_cases_pointwise.cpp op_cases_reduce.cpp op_cases_shape.cpp op_cases_training.cpp op_cases_matmul.cpp op_cases_image.cpp)
target_compile_definitions(op_cases_test PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
tandem_test(pointwise_test pointwise_test.cpp)
tandem_test(training_ops_test training_ops_test.cpp)
tandem_test(cpu_kernels_test cpu_kernels_test.cpp allocations.cpp)
