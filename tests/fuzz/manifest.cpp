// A checkpoint's manifest with any contents is what Tandem writes, byte for byte, or is refused with an
// Error. Its checksum is corrected first, otherwise no fuzzer would get beyond it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/error.h>
#include <tandem/train/checkpoint_manifest.h>

namespace {

// The text with a correct checksum at its end, as Tandem writes it.
std::string with_checksum(const std::string& text) {
  const auto at = text.rfind(",\n \"xxh3\": \"");
  if (at == std::string::npos) return text;
  const std::string begin = text.substr(0, at);
  return begin + ",\n \"xxh3\": \"" + tandem::engine::checksum_of(begin) + "\"\n}\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const std::string& t : {text, with_checksum(text)}) try {
      if (to_json(tandem::manifest_from_json("manifest", t)) != t) std::abort();
    } catch (const tandem::Error&) {
    }
  return 0;
}
