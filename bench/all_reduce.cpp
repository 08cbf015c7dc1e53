// Measures all-reduces in turn with MPI_Allreduce, under mpirun; without mpirun, between ranks that are
// threads, as a share of what memory allows.
#include <cmath>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/launch.h>
#include <tandem/dist/mpi_comm.h>
#include <tandem/dist/thread_comm.h>

#include "ceilings.h"
#include "command_line.h"
#include "measure.h"

#ifdef TANDEM_HAS_MPI
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>
#endif

namespace tandem::bench {
namespace {
using namespace engine;

struct Options {
  std::int64_t least = 1 << 10, most = std::int64_t{256} << 20;
  double seconds = 0.3;  // per size and library
  int threads = 1;
  std::string collective = "auto";
};

std::vector<int> all_ranks(int n) {
  std::vector<int> ranks;
  for (int r = 0; r < n; ++r) ranks.push_back(r);
  return ranks;
}

std::string size_text(std::int64_t bytes) {
  return bytes < 1 << 20 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

#ifdef TANDEM_HAS_MPI
void beside_mpi(MpiSession& session, const Options& o) {
  const auto comm = session.comm({.collective = parse_collective(o.collective)});
  const auto everyone = all_ranks(comm->size());
  const Buffer data(o.most);
  std::fill_n(reinterpret_cast<float*>(data.data()), o.most / 4, 0.0f);
  const auto ours = [&](std::int64_t count) {
    comm->all_reduce_sum(data.data(), count, DType::f32, everyone, 1, o.threads);
  };
  const auto theirs = [&](std::int64_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  if (session.rank() == 0) fmt::print("{:>10} {:>12} {:>12} {:>8}\n", "size", "Tandem us", "MPI us", "speed");
  for (std::int64_t bytes = o.least; bytes <= o.most; bytes *= 4) {
    const std::int64_t count = bytes / 4;
    constexpr int kRounds = 11;  // blocks of calls in turn; all ranks make the same calls
    double once = 0;
    for (int i = 0; i < 3; ++i) {
      const double begin = steady_seconds();
      ours(count);
      theirs(count);
      once = steady_seconds() - begin;
    }
    comm->broadcast(&once, sizeof once, 0, everyone, 2);
    const int calls = std::max(1, static_cast<int>(o.seconds / kRounds / once));
    std::vector<double> ratios, us[2];
    for (int round = 0; round < kRounds; ++round) {
      double seconds[2];
      for (int k = 0; k < 2; ++k) {
        const int which = (round + k) % 2;
        comm->barrier(everyone, 3);
        const double begin = steady_seconds();
        for (int i = 0; i < calls; ++i) which == 0 ? ours(count) : theirs(count);
        seconds[which] = (steady_seconds() - begin) / calls;
      }
      ratios.push_back(seconds[1] / seconds[0]);
      for (int k = 0; k < 2; ++k) us[k].push_back(seconds[k] * 1e6);
    }
    if (session.rank() == 0)
      fmt::print("{:>10} {:>12.1f} {:>12.1f} {:>7.2f}x\n", size_text(bytes), median(us[0]), median(us[1]),
                 median(ratios));
  }
}
#endif

// The sum of two arrays in both ranks reads two and writes two.
void beside_memory(const Options& o) {
  constexpr int kRanks = 2;
  const double bandwidth = measure_ceilings(kRanks).bandwidth;
  fmt::print("{} ranks are threads; memory moves {:.1f} GB/s\n", kRanks, bandwidth / 1e9);
  fmt::print("{:>10} {:>12} {:>8}\n", "size", "Tandem us", "of most");
  const auto comms = thread_comms(kRanks, {.collective = parse_collective(o.collective)});
  for (std::int64_t bytes = o.least; bytes <= o.most; bytes *= 4) {
    std::vector<double> us;
    const auto work = [&](int rank) {
      const Buffer data(bytes);
      std::fill_n(reinterpret_cast<float*>(data.data()), bytes / 4, 0.0f);
      Comm& comm = *comms[static_cast<std::size_t>(rank)];
      const int calls =
          std::max(5, static_cast<int>(o.seconds * bandwidth / (4.0 * static_cast<double>(bytes) + 1e5)));
      for (int i = 0; i < calls; ++i) {
        comm.barrier(all_ranks(kRanks), 2);
        const double begin = steady_seconds();
        comm.all_reduce_sum(data.data(), bytes / 4, DType::f32, all_ranks(kRanks), 1, o.threads);
        if (rank == 0) us.push_back((steady_seconds() - begin) * 1e6);
      }
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    const double least_us = 4.0 * static_cast<double>(bytes) / bandwidth * 1e6;
    fmt::print("{:>10} {:>12.1f} {:>7.0f}%\n", size_text(bytes), median(us), 100 * least_us / median(us));
  }
}

void measure(const Options& o) {
#ifdef TANDEM_HAS_MPI
  if (launch_environment().launched) {
    MpiSession session;
    return beside_mpi(session, o);
  }
#endif
  beside_memory(o);
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  using tandem::bench::Options;
  CLI::App app{
      "Measures all-reduces. Under mpirun: in turn with MPI_Allreduce, whose algorithm mpirun's\n"
      "--mca coll_tuned_... can choose. Without: between ranks that are two threads.",
      "bench_allreduce"};
  Options o;
  app.option_defaults()->always_capture_default();
  app.add_option("--least", o.least, "bytes of the shortest")->check(CLI::Range(4, 1 << 30));
  app.add_option("--most", o.most, "bytes of the longest")->check(CLI::Range(4, 1 << 30));
  app.add_option("--seconds", o.seconds, "time of each size")->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads, "threads of each rank that fold and copy")
      ->check(CLI::Range(1, 1024));
  app.add_option("--collective", o.collective, "auto, direct, or ring");
  return tandem::apps::run_program(app, argc, argv, [&] { tandem::bench::measure(o); });
}
