#pragma once

namespace tandem::bench {

/// The measured limits of this machine. Other benchmarks report shares of them.
struct Ceilings {
  double flops;      ///< f32 operations per second, of fused multiply-adds on registers
  double bandwidth;  ///< bytes per second to and from memory: read x, y, write z
};

/// Measures `threads` threads at once, each on its own core. Returns the best of several tries (about half a
/// second).
Ceilings measure_ceilings(int threads);

}  // namespace tandem::bench
