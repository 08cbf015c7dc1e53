// Links: the model, its text form, and Comms that are slowed down to it.
#include <algorithm>
#include <barrier>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/launch.h>
#include <tandem/dist/link.h>
#include <tandem/dist/thread_comm.h>

#include "expect_error.h"
#include "ranks.h"

namespace tandem::testing {
using namespace engine;
namespace {

using namespace std::chrono_literals;

TEST(LinkModel, TimesAreThoseOfLibraEquations3And4) {
  const LinkModel link{7e-6, 6.25e9};  // one hop of 7 µs, 50 Gb/s: the paper's cluster
  EXPECT_NEAR(all_reduce_startup_seconds(link, 8), 98e-6, 1e-12);
  EXPECT_NEAR(all_reduce_startup_seconds(link, 2048), 28.658e-3, 1e-9);
  EXPECT_NEAR(all_reduce_seconds(link, 112.7e6, 8), 98e-6 + 2 * 7.0 / 8 * 112.7e6 / 6.25e9, 1e-12);
  EXPECT_EQ(all_reduce_seconds(link, 1e9, 1), 0);
  EXPECT_EQ(barrier_seconds(link, 3), all_reduce_startup_seconds(link, 3));
  EXPECT_DOUBLE_EQ(transfer_seconds(link, 6.25e9), 1 + 7e-6);
  EXPECT_EQ(transfer_seconds({2e-3, 0}, 1e9), 2e-3) << "the bandwidth is unlimited";
}

TEST(LinkModel, ReadsCommonSpellings) {
  EXPECT_EQ(parse_link("1GB/s,50us"), (LinkModel{50 * 1e-6, 1e9}));
  EXPECT_EQ(parse_link(" 10 Gb/s , 1.5 ms "), (LinkModel{1.5 * 1e-3, 1.25e9}));
  EXPECT_EQ(parse_link("7us,100Mb/s"), (LinkModel{7 * 1e-6, 12.5e6}));
  EXPECT_EQ(parse_link("500MB/s"), (LinkModel{0, 500e6}));
  EXPECT_EQ(parse_link("800kB/s,0.1s"), (LinkModel{0.1, 800e3}));
  for (const char* text : {"1GB/s,50us", "12.5MB/s,0us", "800kB/s,1.5us", "20us"})
    EXPECT_EQ(to_string(parse_link(text)), text);
}

TEST(LinkModel, RefusesOtherFormsAndListsTheAcceptedOnes) {
  for (const char* text :
       {"", "fast", "1GB", "1gb/s", "GB/s", "1GB/s,", "1GB/s,50", "1GB/s,2GB/s", "1us,2us", "-1GB/s", "0GB/s",
        "nanGB/s", "infus", "1GB/s;50us", "1e999GB/s", "1GB/s,50us,1ms"}) {
    const std::string e = message_of<Error>([&] { parse_link(text); });
    EXPECT_NE(e.find("'1GB/s,50us'"), std::string::npos) << text << ": " << e;
    EXPECT_NE(e.find("10Gb/s"), std::string::npos) << text;
    EXPECT_NE(e.find(fmt::format("link '{}'", text)), std::string::npos) << e;
  }
  for (const char* text : {"1e300GB/s", "1e-300GB/s", "0.999kB/s", "1.1e6GB/s", "1e10s", "101s", "1e999s"})
    EXPECT_THROW(parse_link(text), Error) << text;
  EXPECT_NE(message_of<Error>([] {
              parse_link("1GB/s,1e10s");
            }).find("'1e10s' is out of range: bandwidths are 1kB/s to 1000000GB/s, latencies 0s to 100s"),
            std::string::npos);
  EXPECT_EQ(parse_link("1kB/s,100s"), (LinkModel{100, 1e3}));
  EXPECT_EQ(parse_link("1e6GB/s,0us"), (LinkModel{0, 1e15}));
  for (const LinkModel& link : {LinkModel{-1, 1}, LinkModel{0, std::numeric_limits<double>::quiet_NaN()}})
    EXPECT_THROW(ThreadWorld(1).comm(0, {.link = link}), Error);
}

// The seconds of `work` on each rank, from a common start.
std::vector<double> seconds_of(int ranks, const CommOptions& options,
                               const std::function<void(Comm&)>& work) {
  std::vector<double> seconds(static_cast<std::size_t>(ranks));
  std::barrier start(ranks);
  run_ranks(
      ranks,
      [&](Comm& comm) {
        start.arrive_and_wait();
        seconds[static_cast<std::size_t>(comm.rank())] = measure([&] { work(comm); }).wall;
      },
      options);
  return seconds;
}

constexpr double kClocks = 0.3e-3;  // ranks leave the common start at slightly different times

// Checks that the last rank is never more than `faster` earlier than the model, and that at least once it is
// at most `slower` later: other programs share the machine.
void expect_takes(double model, double faster, double slower, int ranks, const CommOptions& options,
                  const std::function<void(Comm&)>& work) {
#ifdef TANDEM_SANITIZED
  slower += 100e-3;
#endif
  double best = 1e9;
  for (int attempt = 0; attempt < 40 && best > model + slower; ++attempt) {
    const auto seconds = seconds_of(ranks, options, work);
    const double last = *std::max_element(seconds.begin(), seconds.end());
    EXPECT_GE(last, model - faster);
    best = std::min(best, last);
  }
  EXPECT_LE(best, model + slower);
}

TEST(SlowLink, ATransferTakesLatencyPlusBytesOverBandwidth) {
  std::vector<char> from(2'000'000), to(from.size());
  expect_takes(25e-3, kClocks, 2e-3, 2, {.link = LinkModel{5e-3, 100e6}}, [&](Comm& c) {
    if (c.rank() == 0)
      c.send(from.data(), 2'000'000, 1, 1);
    else
      c.receive(to.data(), 2'000'000, 0, 1);
  });
}

TEST(SlowLink, AllReducesTakeTheTimeOfTheirHops) {
  const LinkModel link{1e-3, 50e6};
  constexpr std::int64_t kCount = 1 << 20, kChunk = 128 << 10;
  for (int ranks = 2; ranks <= 4; ++ranks) {
    std::vector<std::vector<float>> data(static_cast<std::size_t>(ranks), std::vector<float>(kCount, 1.0f));
    const auto sum = [&](Comm& c) {
      c.all_reduce_sum(data[static_cast<std::size_t>(c.rank())].data(), kCount, DType::f32, all_ranks(ranks),
                       1);
    };
    SCOPED_TRACE(counted(ranks, "rank"));
    const double direct = all_reduce_seconds(link, 4.0 * kCount, ranks, CollectiveAlgorithm::direct);
    const double ring = all_reduce_seconds(link, 4.0 * kCount, ranks, CollectiveAlgorithm::ring, kChunk);
    expect_takes(direct, 0.05 * direct, 0.05 * direct, ranks, {.link = link, .segment_bytes = kChunk}, sum);
    expect_takes(ring, 0.05 * ring, 0.05 * ring, ranks,
                 {.collective = CollectiveAlgorithm::ring, .link = link, .segment_bytes = kChunk}, sum);
  }
}

TEST(SlowLink, SmallSumsTakeTheLatencyOfTheirHops) {
  const LinkModel link{5e-3, 0};
  for (int ranks = 2; ranks <= 4; ++ranks) {
    std::vector<float> data(4);
    const auto sum = [&](Comm& c) {
      c.all_reduce_sum(&data[static_cast<std::size_t>(c.rank())], 1, DType::f32, all_ranks(ranks), 1);
    };
    const double hops = all_reduce_startup_seconds(link, ranks);  // Eq. 4's a
    expect_takes(2 * link.latency, kClocks, 1e-3, ranks, {.link = link}, sum);
    expect_takes(hops, kClocks, 0.05 * hops + 0.5e-3, ranks,
                 {.collective = CollectiveAlgorithm::ring, .link = link}, sum);
  }
}

TEST(SlowLink, TransfersOfTwoRanksHaveALinkInEachDirection) {
  const CommOptions options{.link = LinkModel{0, 50e6}};
  std::vector<char> data(4 << 20);
  const auto move = [&](Comm& c, int from, int to, int lane) {
    if (c.rank() == from)
      c.send(data.data() + lane * 1'000'000, 1'000'000, to, static_cast<std::uint64_t>(lane));
    if (c.rank() == to)
      c.receive(data.data() + (2 + lane) * 1'000'000, 1'000'000, from, static_cast<std::uint64_t>(lane));
  };
  const auto both = [&](const std::function<void(Comm&, int)>& transfer) {
    return [=](Comm& c) { run_lanes(2, [&](int lane) { transfer(c, lane); }); };  // 20 ms each, in two lanes
  };
  expect_takes(40e-3, kClocks, 2e-3, 2, options, both([&](Comm& c, int lane) { move(c, 0, 1, lane); }));
  expect_takes(20e-3, kClocks, 2e-3, 2, options,
               both([&](Comm& c, int lane) { move(c, lane, 1 - lane, lane); }));
  expect_takes(20e-3, kClocks, 2e-3, 3, options,
               both([&](Comm& c, int lane) { move(c, 0, 1 + lane, lane); }));
  expect_takes(20e-3, kClocks, 2e-3, 3, options,
               both([&](Comm& c, int lane) { move(c, 1 + lane, 0, lane); }));
}

TEST(SlowLink, CollectivesOfARankShareALinkThatTransfersDoNotUse) {
  constexpr std::int64_t kCount = 250'000;  // 1 MB
  for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::direct, CollectiveAlgorithm::ring}) {
    const LinkModel link{0, 50e6};
    const CommOptions options{.collective = algorithm, .link = link};
    std::vector<std::vector<float>> data(4, std::vector<float>(kCount, 1.0f));  // by rank and lane
    const auto work = [&](Comm& c, int lane, bool transfers) {
      float* const mine = data[static_cast<std::size_t>(2 * c.rank() + lane)].data();
      const auto channel = static_cast<std::uint64_t>(1 + lane);
      if (!transfers)
        c.all_reduce_sum(mine, kCount, DType::f32, all_ranks(2), channel);
      else if (c.rank() == 0)
        c.send(mine, 4 * kCount, 1, channel);
      else
        c.receive(mine, 4 * kCount, 0, channel);
    };
    const double one = all_reduce_seconds(link, 4.0 * kCount, 2, algorithm);
    expect_takes(2 * 4.0 * kCount / link.bandwidth, kClocks, 6e-3, 2, options,
                 [&](Comm& c) { run_lanes(2, [&](int lane) { work(c, lane, false); }); });
    expect_takes(one, kClocks, 4e-3, 2, options,
                 [&](Comm& c) { run_lanes(2, [&](int lane) { work(c, lane, lane == 1); }); });
  }
}

TEST(SlowLink, LatencyDelaysAndOccupiesNothing) {
  std::vector<char> data(2'000'000);
  expect_takes(5e-3 + 10e-3, kClocks, 5e-3, 2, {.link = LinkModel{5e-3, 100e6}}, [&](Comm& c) {
    run_lanes(10, [&](int lane) {
      char* const mine = data.data() + lane * 100'000;
      const auto channel = static_cast<std::uint64_t>(lane);
      if (c.rank() == 0)
        c.send(mine, 100'000, 1, channel);
      else
        c.receive(mine + 1'000'000, 100'000, 0, channel);
    });
  });
}

TEST(SlowLink, ChangesNoBit) {
  for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::direct, CollectiveAlgorithm::ring})
    run_ranks(3,
              [](Comm& c) {
                auto data = values_of<float>(c.rank(), 20001, run_seed());
                c.all_reduce_sum(data.data(), 20001, DType::f32, all_ranks(3), 1);
                EXPECT_TRUE(same_bits(data, left_fold<float>(all_ranks(3), 20001, run_seed())));
              },
              {.collective = algorithm, .link = LinkModel{1e-4, 1e9}});
}

TEST(SlowLink, MismatchedEndsGetAnError) {
  float x = 0;
  expect_error(
      [&] {
        run_ranks(2, [&](Comm& c) { c.rank() == 0 ? c.send(&x, 4, 1, 1) : c.receive(&x, 2, 0, 1); },
                  {.link = LinkModel{}});
      },
      {"rank 0 sends 4 bytes, rank 1 receives 2"});
}

TEST(SlowLink, AbortEndsASlowTransferAtOnce) {
  ThreadWorld world(2);
  std::vector<std::thread> threads;
  std::vector<char> data(60'000);
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const auto comm = world.comm(rank, {.link = LinkModel{0, 1}});  // 30,000 s
      const Used used = measure([&] {
        EXPECT_EQ(message_of<Aborted>([&] {
                    rank == 0 ? comm->send(data.data(), 30'000, 1, 1)
                              : comm->receive(data.data() + 30'000, 30'000, 0, 1);
                  }),
                  "stop");
      });
      EXPECT_LT(used.wall, 1.5);
      EXPECT_LT(used.cpu / used.wall, 0.02) << "the wait must sleep, not spin";
    });
  std::this_thread::sleep_for(900ms);
  world.comm(0)->abort("stop");
  for (std::thread& t : threads) t.join();
}

TEST(LaunchEnvironment, KnowsTheLaunchersAndRefusesInvalidValues) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const auto with = [](const Variables& variables) {
    return launch_environment([&](const char* name) -> const char* {
      for (const auto& [key, value] : variables)
        if (key == name) return value.c_str();
      return nullptr;
    });
  };
  EXPECT_FALSE(with({}).launched);
  EXPECT_EQ(with({}).size, 1);
  const auto ompi = with({{"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_TRUE(ompi.launched);
  EXPECT_EQ(ompi.rank, 3);
  EXPECT_EQ(ompi.size, 4);
  EXPECT_EQ(ompi.local_rank, 1);
  EXPECT_EQ(ompi.local_size, 2);
  EXPECT_EQ(with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).rank, 1);
  EXPECT_EQ(with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).local_size, 0) << "it does not tell";
  EXPECT_EQ(
      with({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "2"}, {"SLURM_STEP_ID", "0"}})
          .local_rank,
      2);
  EXPECT_FALSE(with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).launched)
      << "a batch script is not a task of srun";
  EXPECT_EQ(with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).size,
            2)
      << "mpirun inside a SLURM job";
  const auto error = [&](const char* rank) {
    return message_of<Error>([&] { with({{"PMI_RANK", rank}, {"PMI_SIZE", "2"}}); });
  };
  EXPECT_NE(error("x").find("PMI_RANK='x'"), std::string::npos);
  EXPECT_NE(error("2").find("not below"), std::string::npos);
}

}  // namespace
}  // namespace tandem::testing
