// Measures the limits of this machine in arithmetic and in memory bandwidth, on 1 … N threads.
#include <cstdio>

#include <tandem/core/base/team.h>

#include "ceilings.h"
#include "command_line.h"

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app{"Measures the limits of this machine in arithmetic and in memory bandwidth.", "bench_peak"};
  int threads = default_threads();
  app.option_defaults()->always_capture_default();
  app.add_option("--threads", threads, "most threads to measure")->check(CLI::PositiveNumber);
  return apps::run_program(app, argc, argv, [&] {
    for (int t = 1; t <= threads; ++t) {
      const bench::Ceilings c = bench::measure_ceilings(t);
      std::printf("%2d threads  %6.0f GFLOP/s f32  %6.1f GB/s\n", t, c.flops / 1e9, c.bandwidth / 1e9);
    }
  });
}
