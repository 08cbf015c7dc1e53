// Ranks that are threads: the guarantees of every Comm, and how a run ends.
#include <algorithm>
#include <atomic>
#include <limits>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/gather.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/thread_comm.h>

#include "allocations.h"
#include "expect_error.h"
#include "ranks.h"

namespace tandem::testing {
using namespace engine;
namespace {

using namespace std::chrono_literals;

template <class T> constexpr DType dtype_of = std::is_same_v<T, float> ? DType::f32 : DType::f64;

const CommOptions kRing{.collective = CollectiveAlgorithm::ring};

template <class T> void expect_left_folds(int ranks, const CommOptions& options) {
  for (const std::int64_t count : {0, 1, 2, 3, 5, 1000, 8191, 8193, 100003, 1 << 19}) {
    const std::uint64_t seed = run_seed() + static_cast<std::uint64_t>(count);
    const auto expected = left_fold<T>(all_ranks(ranks), count, seed);
    run_ranks(
        ranks,
        [&](Comm& comm) {
          for (const int threads : {1, 2, 3}) {
            auto data = values_of<T>(comm.rank(), count, seed);
            comm.all_reduce_sum(data.data(), count, dtype_of<T>, all_ranks(ranks), 7, threads);
            EXPECT_TRUE(same_bits(data, expected)) << "rank " << comm.rank() << " of " << ranks << ", count "
                                                   << count << ", " << counted(threads, "thread");
          }
        },
        options);
  }
}

TEST(ThreadComm, AllReduceIsTheLeftFoldBitForBit) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const CommOptions& options :
         {CommOptions{}, kRing, CommOptions{.segment_bytes = 100'000},
          CommOptions{.collective = CollectiveAlgorithm::ring, .segment_bytes = 100'000}}) {
      expect_left_folds<float>(ranks, options);
      expect_left_folds<double>(ranks, options);
    }
  }
}

TEST(ThreadComm, ReduceScatterAndAllGatherMoveSlices) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (const CommOptions& options : {CommOptions{}, kRing})
      run_ranks(
          ranks, [&](Comm& comm) { expect_slices(comm, 3); }, options);
}

TEST(ThreadComm, BroadcastCopiesFromTheRoot) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    for (const CommOptions& options : {CommOptions{}, kRing})
      run_ranks(
          ranks, [&](Comm& comm) { expect_broadcasts(comm, 3); }, options);
}

TEST(ThreadComm, AnAllReduceSaysWhenTheLastRankHadCalled) {
  for (const std::int64_t count : {1, 100'000}) {
    std::atomic<double> called{0};
    run_ranks(3, [&](Comm& comm) {
      std::vector<float> data(static_cast<std::size_t>(count), 1);
      if (comm.rank() == 1) {
        std::this_thread::sleep_for(20ms);
        called = steady_seconds();
      }
      const double met = comm.all_reduce_sum(data.data(), count, DType::f32, all_ranks(3), 1);
      EXPECT_GE(met, called.load()) << "rank " << comm.rank();
      EXPECT_LE(met, steady_seconds());
    });
  }
}

TEST(ThreadComm, IntegersSumAndWrap) {
  run_ranks(3, [](Comm& comm) {
    std::vector<std::int32_t> small{comm.rank(), std::numeric_limits<std::int32_t>::max()};
    std::vector<std::int64_t> large(20000, std::int64_t{1} << 40);
    comm.all_reduce_sum(small.data(), 2, DType::i32, all_ranks(3), 1);
    comm.all_reduce_sum(large.data(), 20000, DType::i64, all_ranks(3), 2);
    EXPECT_EQ(small[0], 3);
    EXPECT_EQ(small[1], std::numeric_limits<std::int32_t>::max() - 2);  // 3·(2^31 − 1) mod 2^32
    for (const auto v : large) ASSERT_EQ(v, std::int64_t{3} << 40);
  });
}

TEST(ThreadComm, GroupsAreIndependentAlsoWithinOneChannel) {
  const std::vector<std::vector<int>> groups = {{0, 2}, {1, 3}, {1, 2, 3}, {3}};
  run_ranks(4, [&](Comm& comm) {
    for (int repeat = 0; repeat < 20; ++repeat)
      for (std::size_t g = 0; g < groups.size(); ++g) {
        const auto& group = groups[g];
        if (std::find(group.begin(), group.end(), comm.rank()) == group.end()) continue;
        const std::int64_t count = repeat % 2 ? 11 : 30001;
        auto data = values_of<float>(comm.rank(), count, run_seed() + g);
        comm.all_reduce_sum(data.data(), count, DType::f32, group,
                            g < 2 ? 0 : g);  // {0,2} and {1,3} share channel 0
        EXPECT_TRUE(same_bits(data, left_fold<float>(group, count, run_seed() + g)));
      }
  });
}

TEST(ThreadComm, LanesReduceInManyChannelsAtOnce) {
  constexpr int kRanks = 3, kLanes = 5;
  run_ranks(kRanks, [&](Comm& comm) {
    run_lanes(kLanes, [&](int lane) {
      const std::int64_t count = lane % 2 ? 17 + lane : 20000 + lane;
      const std::uint64_t seed = run_seed() + static_cast<std::uint64_t>(lane);
      const auto expected = left_fold<double>(all_ranks(kRanks), count, seed);
      for (int repeat = 0; repeat < 50; ++repeat) {
        auto data = values_of<double>(comm.rank(), count, seed);
        comm.all_reduce_sum(data.data(), count, DType::f64, all_ranks(kRanks),
                            static_cast<std::uint64_t>(lane));
        ASSERT_TRUE(same_bits(data, expected)) << "lane " << lane << " repeat " << repeat;
      }
    });
  });
}

// Every pair of ranks exchanges messages of random sizes in both directions, in two channels, all at once.
void storm(Comm& comm, int messages) {
  struct Flow {
    int from, to;
    std::uint64_t channel;
  };
  std::vector<Flow> mine;
  for (int from = 0; from < comm.size(); ++from)
    for (int to = 0; to < comm.size(); ++to)
      for (const std::uint64_t channel : {1ull, 0xfedcba9876543210ull})
        if (from != to && (from == comm.rank() || to == comm.rank())) mine.push_back({from, to, channel});
  run_lanes(static_cast<int>(mine.size()), [&](int lane) {
    const Flow& flow = mine[static_cast<std::size_t>(lane)];
    std::mt19937_64 rng(run_seed() + static_cast<std::uint64_t>(flow.from * 100 + flow.to) + flow.channel);
    std::vector<std::uint32_t> data;
    for (int m = 0; m < messages; ++m) {
      const std::size_t length = rng() % (m % 10 == 0 ? 60000 : 50);
      const auto first = static_cast<std::uint32_t>(rng());
      if (flow.from == comm.rank()) {
        data.resize(length);
        std::iota(data.begin(), data.end(), first);
        comm.send(data.data(), static_cast<std::int64_t>(length * 4), flow.to, flow.channel);
        std::fill(data.begin(), data.end(), 0u);  // may be overwritten now
      } else {
        data.assign(length, 0u);
        comm.receive(data.data(), static_cast<std::int64_t>(length * 4), flow.from, flow.channel);
        for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(data[i], first + static_cast<std::uint32_t>(i));
      }
    }
  });
}

TEST(ThreadComm, MessagesArriveInOrderOverManyChannels) {
  run_ranks(3, [](Comm& comm) { storm(comm, 200); });
}

TEST(ThreadComm, NoRankLeavesABarrierBeforeAllHaveEntered) {
  std::atomic<int> entered{0};
  run_ranks(4, [&](Comm& comm) {
    for (int round = 1; round <= 200; ++round) {
      ++entered;
      comm.barrier(all_ranks(4), 3);
      EXPECT_GE(entered.load(), 4 * round);
      comm.barrier(all_ranks(4), 3);
    }
  });
}

TEST(ThreadComm, SteadyStateAllocatesNothing) {
#ifdef TANDEM_SANITIZED
  GTEST_SKIP() << "sanitizers replace the allocator that this test counts";
#else
  const CommOptions slow_ring{.collective = CollectiveAlgorithm::ring, .link = LinkModel{1e-5, 0}};
  const CommOptions watched{.watch = WatchOptions{}};
  for (const CommOptions& options : {CommOptions{}, kRing, slow_ring, watched}) {
    std::atomic<long> before{0};
    run_ranks(
        3,
        [&](Comm& comm) {
          const auto group = all_ranks(3);
          std::vector<float> data(50000, 1.0f);
          for (int round = 0; round < 20; ++round) {
            if (round == 2) {
              comm.barrier(group, 0);
              before = allocations();
              comm.barrier(group, 0);
            }
            comm.all_reduce_sum(data.data(), 50000, DType::f32, group, 1, 3);
            comm.all_reduce_sum(data.data(), 10, DType::f32, group, 1);
            comm.broadcast(data.data(), 40000, 1, group, 1);
            if (comm.rank() == 0) comm.send(data.data(), 400, 1, 2);
            if (comm.rank() == 1) comm.receive(data.data(), 400, 0, 2);
          }
          comm.barrier(group, 0);
          EXPECT_EQ(allocations(), before.load());
          comm.barrier(group, 0);
        },
        options);
  }
#endif
}

TEST(ThreadComm, AbortWakesEveryBlockedCallWithItsReason) {
  ThreadWorld world(4);
  std::atomic<int> woken{0};
  std::vector<float> data(8);
  const std::vector<std::function<void(Comm&)>> calls = {
      [&](Comm& c) { c.all_reduce_sum(data.data(), 8, DType::f32, all_ranks(4), 1); },
      [&](Comm& c) { c.barrier(all_ranks(4), 2); }, [&](Comm& c) { c.send(data.data(), 8, 3, 3); },
      [&](Comm& c) { c.receive(data.data(), 8, 3, 4); }};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    for (const auto& call : calls)
      threads.emplace_back([&, rank] {
        const auto comm = world.comm(rank);
        if (message_of<Aborted>([&] { call(*comm); }) == "rank 3: out of memory") ++woken;
      });
  std::this_thread::sleep_for(100ms);
  const Used used = measure([&] {
    world.comm(3)->abort("rank 3: out of memory");
    world.comm(2)->abort("a later reason");
    for (std::thread& t : threads) t.join();
  });
  EXPECT_EQ(woken.load(), 12);
  EXPECT_LT(used.wall, 1.0);
  for (const auto& call : calls)
    EXPECT_EQ(message_of<Aborted>([&] { call(*world.comm(2)); }), "rank 3: out of memory")
        << "after the abort";
}

TEST(ThreadComm, AbortDuringTrafficWakesEveryRank) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    ThreadWorld world(3);
    std::vector<std::thread> threads;
    std::atomic<int> aborted{0};
    for (int rank = 0; rank < 3; ++rank)
      for (int lane = 0; lane < 2; ++lane)
        threads.emplace_back([&, rank, lane] {
          const auto comm = world.comm(rank);
          const std::string reason = message_of<Aborted>([&] {
            for (;;) {  // buffers die with each round, so sanitizers detect a late writer
              std::vector<float> data(lane ? 30 : 40000, 1.0f);
              comm->all_reduce_sum(data.data(), static_cast<std::int64_t>(data.size()), DType::f32,
                                   all_ranks(3), static_cast<std::uint64_t>(lane));
              if (rank == 0) comm->send(data.data(), 120, 1, static_cast<std::uint64_t>(lane));
              if (rank == 1) comm->receive(data.data(), 120, 0, static_cast<std::uint64_t>(lane));
            }
          });
          if (reason == "enough") ++aborted;
        });
    std::this_thread::sleep_for(std::chrono::milliseconds(10 + 7 * attempt));
    world.abort("enough");
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(aborted.load(), 6);
  }
}

// Runs a call on every rank; returns each rank's error.
std::vector<std::string> errors_of(int ranks, const std::function<void(Comm&)>& call) {
  ThreadWorld world(ranks);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto comm = world.comm(rank);
      errors[static_cast<std::size_t>(rank)] = message_of<Error>([&] { call(*comm); });
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

TEST(Gather, GivesTheRootAllRanksArraysInTheirOrder) {
  constexpr int kRanks = 3, kRoot = 1;
  run_ranks(kRanks, [&](Comm& comm) {
    const std::vector<std::int64_t> mine(static_cast<std::size_t>(comm.rank()), comm.rank() + 10);
    const auto all = gather(comm, std::span(mine), kRoot, 3);
    using Arrays = std::vector<std::vector<std::int64_t>>;
    EXPECT_EQ(all, comm.rank() == kRoot ? (Arrays{{}, {11}, {12, 12}}) : Arrays{});
  });
}

TEST(Agree, NamesTheRanksThatDifferOnEveryRank) {
  run_ranks(3, [](Comm& comm) { agree(comm, 5, "the data", 3); });
  const auto errors = errors_of(4, [](Comm& comm) { agree(comm, comm.rank() % 2, "the data", 3); });
  for (std::size_t r = 0; r < errors.size(); ++r)
    expect_words(errors[r], {"rank " + std::to_string(r), "disagree on the data", "rank 1, 3 has another"});
}

TEST(Agree, NamesTheFirstValueThatDiffers) {
  const std::vector<Agreed> usual{{"a", 1}, {"b", 2}, {"c", 3}};
  const auto expect_refused = [&](const std::vector<Agreed>& one, const std::vector<Agreed>& two,
                                  const std::string& words) {
    const std::vector<std::vector<Agreed>> of_ranks{usual, one, two};
    for (const std::string& e :
         errors_of(3, [&](Comm& comm) { agree(comm, of_ranks[static_cast<std::size_t>(comm.rank())], 3); }))
      EXPECT_NE(e.find("the ranks disagree on " + words), std::string::npos) << e;
  };
  expect_refused({{"a", 1}, {"b", 2}, {"c", 4}}, {{"a", 1}, {"b", 0}, {"c", 4}}, "b: rank 2 has");
  expect_refused({{"a", 1}, {"b", 2}, {"c", 4}}, usual, "c: rank 1 has");
  expect_refused(usual, {{"a", 1}}, "the build: rank 2 has");
  expect_refused({{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}}, {}, "the build: rank 1, 2 has");
}

TEST(ThreadComm, MismatchedEndsAllGetAnError) {
  std::vector<double> data(100);
  for (const auto& e : errors_of(2, [&](Comm& c) {
         if (c.rank() == 0)
           c.send(data.data(), 80, 1, 5);
         else
           c.receive(data.data() + 50, 88, 0, 5);
       }))
    EXPECT_EQ(e, "channel 5: rank 0 sends 80 bytes, rank 1 receives 88: both ends of a transfer must agree");
  for (const auto& e : errors_of(3, [&](Comm& c) {
         std::vector<float> mine(10);
         c.all_reduce_sum(mine.data(), c.rank() == 1 ? 9 : 10, DType::f32, all_ranks(3), 6);
       }))
    EXPECT_EQ(e,
              "channel 6: the ranks of a group must make the same call, but rank 0: an all-reduce of 10 f32, "
              "rank 1: an all-reduce of 9 f32, rank 2: an all-reduce of 10 f32");
  for (const auto& e : errors_of(2, [&](Comm& c) {
         if (c.rank() == 0)
           c.barrier(all_ranks(2), 6);
         else
           c.all_reduce_sum(data.data(), 3, DType::f64, all_ranks(2), 6);
       }))
    EXPECT_NE(e.find("rank 0: a barrier, rank 1: an all-reduce of 3 f64"), std::string::npos) << e;
}

TEST(ThreadComm, CrossedGroupsAreRefusedInsteadOfHanging) {
  ThreadWorld world(3);
  std::vector<float> a(4), b(4);
  std::thread waiting([&] {
    const auto call = [&] { world.comm(0)->all_reduce_sum(a.data(), 4, DType::f32, std::vector{0, 1}, 9); };
    EXPECT_EQ(message_of<Aborted>(call), "over");
  });
  std::this_thread::sleep_for(100ms);
  const std::string e =
      message_of<Error>([&] { world.comm(1)->all_reduce_sum(b.data(), 4, DType::f32, all_ranks(3), 9); });
  EXPECT_EQ(e, "channel 9: rank 1 calls over ranks [0, 1, 2] while rank 0 waits for it over ranks [0, 1]");
  world.abort("over");
  waiting.join();
}

TEST(ThreadComm, BadArgumentsNameWhatIsWrong) {
  const ThreadWorld world(3);
  const auto comm = world.comm(1);
  float x = 0;
  const auto reduce = [&](std::vector<int> group, DType dtype) {
    return message_of<Error>([&] { comm->all_reduce_sum(&x, 1, dtype, group, 4); });
  };
  EXPECT_NE(reduce({0, 2}, DType::f32).find("rank 1 is not in the group [0, 2]"), std::string::npos);
  EXPECT_NE(reduce({1, 0}, DType::f32).find("not ascending"), std::string::npos);
  EXPECT_NE(reduce({1, 3}, DType::f32).find("not ascending ranks below 3"), std::string::npos);
  EXPECT_NE(reduce({0, 1}, DType::bf16).find("cannot sum bf16: only f32, f64, i32, i64"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { comm->send(&x, 4, 1, 0); }).find("send with rank 1"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { comm->receive(&x, 4, 7, 0); }).find("receive with rank 7"),
            std::string::npos);
  EXPECT_THROW(ThreadWorld(0), Error);
  EXPECT_THROW(world.comm(3), Error);
}

TEST(ThreadComm, AWaitingLaneUsesLittleOfACore) {
  ThreadWorld world(2);
  float x = 0;
  const std::vector<std::function<void(Comm&)>> calls = {
      [&](Comm& c) { c.all_reduce_sum(&x, 1, DType::f32, all_ranks(2), 1); },
      [&](Comm& c) { c.receive(&x, 4, 1, 2); }, [&](Comm& c) { c.send(&x, 4, 1, 3); }};
  std::vector<std::thread> threads;
  for (const auto& call : calls)
    threads.emplace_back([&] {
      const auto comm = world.comm(0);
      const Used used = measure([&] { EXPECT_THROW(call(*comm), Aborted); });
      EXPECT_GT(used.wall, 0.9);
      EXPECT_LT(used.cpu / used.wall, 0.02);
    });
  std::this_thread::sleep_for(1s);
  world.abort("measured");
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace tandem::testing
