// A file of `tandem plan memory` with any contents is read and planned, or refused with an Error.
#include <tandem/core/base/error.h>
#include <tandem/memory/memory_policies.h>

#include "fuzzed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tandem::testing::FuzzedFile input(data, size);
  try {
    const tandem::engine::MemoryProblem problem = tandem::engine::read_memory_problem(input.path());
    tandem::engine::memory_policy("mu-two").make(problem, 500);
  } catch (const tandem::Error&) {
  }
  return 0;
}
