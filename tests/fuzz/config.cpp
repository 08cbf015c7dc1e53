// A file of flags with any contents is read, or refused with an Error.
#include <cstdint>
#include <string>

#include <tandem/core/base/error.h>

#include "toml_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    tandem::apps::read_toml(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const tandem::Error&) {
  }
  return 0;
}
