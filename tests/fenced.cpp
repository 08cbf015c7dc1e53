#include "fenced.h"

#include <cstring>

#include <tandem/core/memory.h>

namespace tandem::test {
namespace {

constexpr std::int64_t kFence = 64;
constexpr unsigned char kFenceByte = 0xa5;

}  // namespace

Fenced::Fenced(std::int64_t bytes, unsigned char fill)
    : bytes_(bytes), memory_(allocate(bytes + 2 * kFence)), data_(memory_.get() + kFence) {
  std::memset(memory_.get(), kFenceByte, static_cast<std::size_t>(bytes + 2 * kFence));
  if (bytes > 0) std::memset(data_, fill, static_cast<std::size_t>(bytes));
}

bool Fenced::intact() const {
  for (std::int64_t i = 0; i < kFence; ++i)
    if (memory_.get()[i] != std::byte{kFenceByte} || data_[bytes_ + i] != std::byte{kFenceByte}) return false;
  return true;
}

}  // namespace tandem::test
