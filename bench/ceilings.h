#pragma once

namespace tandem::bench {

/// What this machine can do at most, measured: the ceilings that other benchmarks give shares of.
struct Ceilings {
  double flops;      ///< f32 operations a second, of fused multiply-adds on registers
  double bandwidth;  ///< bytes a second to and from memory: read x, y, write z
};

/// Of `threads` threads at once, each on a core of its own; the best of several tries (about half a second).
Ceilings measure_ceilings(int threads);

}  // namespace tandem::bench
