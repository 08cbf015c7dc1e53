// A plan file with any contents is read, or refused with an Error.
#include <tandem/core/base/error.h>
#include <tandem/plan/plan_file.h>

#include "fuzzed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tandem::testing::FuzzedFile input(data, size);
  try {
    tandem::Strategy strategy;
    tandem::engine::read_plan(input.path(), strategy);
  } catch (const tandem::Error&) {
  }
  return 0;
}
