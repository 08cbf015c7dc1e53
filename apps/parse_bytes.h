#pragma once
#include <cstdint>
#include <string>

namespace tandem::apps {

/// Returns the bytes that a text means: "1000000", "512MB", "1.5GiB", "64K". Case does not matter; K and kB
/// are 1000 bytes, Ki and KiB 1024. Throws Error listing the forms.
std::int64_t parse_bytes(const std::string& text);

}  // namespace tandem::apps
