#include <tandem/core/checksum.h>

#define XXH_INLINE_ALL  // the header alone: nothing to link
#include <xxhash.h>

#include <new>

#include <fmt/format.h>

namespace tandem {
namespace {
XXH3_state_t* as_state(const std::shared_ptr<void>& state) { return static_cast<XXH3_state_t*>(state.get()); }
}  // namespace

Checksum::Checksum()
    : state_(XXH3_createState(), [](void* state) { XXH3_freeState(static_cast<XXH3_state_t*>(state)); }) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(as_state(state_));
}

void Checksum::update(std::span<const std::byte> data) {
  XXH3_64bits_update(as_state(state_), data.data(), data.size());
}

std::string Checksum::hex() const { return fmt::format("{:016x}", XXH3_64bits_digest(as_state(state_))); }

}  // namespace tandem
