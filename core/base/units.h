#pragma once

namespace tandem {

// The engine computes in seconds and bytes; files, options and reports have these units.
inline constexpr double kMsPerSecond = 1e3, kBytesPerMb = 1e6;

}  // namespace tandem
