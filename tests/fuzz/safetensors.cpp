// A safetensors file with any contents is read within its bytes, or refused with an Error.
#include <tandem/core/base/error.h>
#include <tandem/nn/safetensors.h>

#include "fuzzed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tandem::testing::FuzzedFile input(data, size);
  try {
    const tandem::nn::SafetensorsFile file(input.path());
    std::size_t bytes = 0;
    for (const auto& [name, tensor] : file.read_all())
      bytes += static_cast<std::size_t>(tensor.type().bytes());
    if (bytes > size) std::abort();
  } catch (const tandem::Error&) {
  }
  return 0;
}
