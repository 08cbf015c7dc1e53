// A Program's JSON with any contents is a schedule that can be written and read again, or is refused with an
// Error. A small one is also planned and proved, or refused.
#include <algorithm>
#include <cstdlib>
#include <string>

#include <tandem/core/base/error.h>
#include <tandem/core/schedule/program_json.h>
#include <tandem/core/schedule/verify.h>
#include <tandem/memory/placement.h>

namespace {

// Unrolling large ones takes too long.
bool is_small(const tandem::engine::Program& p) {
  return p.instructions.size() <= 20 && p.max_lag <= 8 && p.devices <= 8 && p.lanes.size() <= 16 &&
         p.replicas <= 4 && std::ranges::all_of(p.blocks, [](const auto& b) { return b.slots <= 8; }) &&
         std::ranges::all_of(p.members, [](const auto& m) { return m.shift >= -8; }) &&
         std::ranges::all_of(p.instructions, [](const auto& s) {
           return std::ranges::all_of(s.waits, [](const auto& w) { return w.back <= 8; });
         });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const tandem::engine::Program program =
        tandem::engine::program_from_json(std::string(reinterpret_cast<const char*>(data), size));
    if (is_small(program)) tandem::engine::verify(tandem::engine::planned(program));
  } catch (const tandem::Error&) {
  }
  return 0;
}
