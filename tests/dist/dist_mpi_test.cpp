// mpirun starts it on every rank. Without arguments it checks that MPI gives the bits of the thread
// transport. With an argument it plays a scene of a run's end, which dist_mpi_end_test.cpp observes.
#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/timeline.h>
#include <tandem/dist/link.h>
#include <tandem/dist/mpi_comm.h>

#include "allocations.h"
#include "expect_error.h"
#include "ranks.h"

namespace tandem::testing {
using namespace engine;
namespace {

using namespace std::chrono_literals;

MpiSession* session = nullptr;

// The results of each rank in a world of threads with the same data.
template <class T>
std::vector<T> by_threads(int rank, int size, std::int64_t count, DType dtype, std::uint64_t seed) {
  std::vector<T> result;
  run_ranks(size, [&](Comm& comm) {
    auto data = values_of<T>(comm.rank(), count, seed);
    comm.all_reduce_sum(data.data(), count, dtype, all_ranks(size), 1);
    if (comm.rank() == rank) result = data;
  });
  return result;
}

template <class T> void expect_thread_bits(Comm& comm, DType dtype, std::uint64_t channel) {
  for (const std::int64_t count : {0, 1, 2, 3, 5, 1000, 4095, 4097, 100003, 1 << 20}) {
    const std::uint64_t seed = run_seed() + static_cast<std::uint64_t>(count);
    const auto expected = by_threads<T>(comm.rank(), comm.size(), count, dtype, seed);
    for (const int threads : {1, 2, 3}) {
      auto data = values_of<T>(comm.rank(), count, seed);
      comm.all_reduce_sum(data.data(), count, dtype, all_ranks(comm.size()), channel, threads);
      EXPECT_TRUE(same_bits(data, expected))
          << "rank " << comm.rank() << ", count " << count << ", " << counted(threads, "thread");
    }
  }
}

TEST(MpiComm, AllReduceEqualsThreadsBitwise) {
  const auto comm = session->comm();
  expect_thread_bits<float>(*comm, DType::f32, 3);
  expect_thread_bits<double>(*comm, DType::f64, 0xfedcba9876543210ull);
}

TEST(MpiComm, AllReduceWorksInManyShortSegments) {
  const auto comm = session->comm({.segment_bytes = 4096, .message_bytes = 1000});
  expect_thread_bits<float>(*comm, DType::f32, 3);
}

TEST(MpiComm, ARingGivesTheSameBits) {
  const auto comm = session->comm({.collective = CollectiveAlgorithm::ring});
  expect_thread_bits<float>(*comm, DType::f32, 3);
  expect_thread_bits<double>(*session->comm({.collective = CollectiveAlgorithm::ring, .segment_bytes = 4096}),
                             DType::f64, 3);
}

TEST(MpiComm, OtherCollectivesEqualThoseOfThreads) {
  for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::direct, CollectiveAlgorithm::ring}) {
    const auto comm = session->comm({.collective = algorithm});
    expect_slices(*comm, 3);
    expect_broadcasts(*comm, 3);
  }
}

TEST(MpiComm, GroupsAreSubsetsOfTheRanks) {
  const auto comm = session->comm();
  if (comm->size() < 4) return;  // needs four ranks
  for (const std::vector<int>& group : {std::vector{0, 2}, std::vector{1, 3}, std::vector{1, 2, 3}}) {
    if (!std::binary_search(group.begin(), group.end(), comm->rank())) continue;
    for (const std::int64_t count : {7, 50000}) {
      auto data = values_of<double>(comm->rank(), count, run_seed());
      comm->all_reduce_sum(data.data(), count, DType::f64, group, 5);
      EXPECT_TRUE(same_bits(data, left_fold<double>(group, count, run_seed())));
    }
  }
}

TEST(MpiComm, LanesUseManyChannelsAtOnce) {
  const auto comm = session->comm({.message_bytes = 5000});
  const int n = comm->size(), next = (comm->rank() + 1) % n, previous = (comm->rank() + n - 1) % n;
  run_lanes(6, [&](int lane) {
    const auto channel =
        static_cast<std::uint64_t>(lane / 2);  // transfers and sums with the same number do not mix
    const std::int64_t count = lane < 3 ? 13 + lane : 30000 + lane;
    const std::uint64_t seed = run_seed() + static_cast<std::uint64_t>(lane);
    if (lane % 3 == 0) {
      const auto expected = left_fold<float>(all_ranks(n), count, seed);
      for (int repeat = 0; repeat < 30; ++repeat) {
        auto data = values_of<float>(comm->rank(), count, seed);
        comm->all_reduce_sum(data.data(), count, DType::f32, all_ranks(n), channel);
        ASSERT_TRUE(same_bits(data, expected)) << "lane " << lane;
      }
    } else if (lane % 3 == 1) {
      auto data = values_of<float>(comm->rank(), count, seed);
      for (int repeat = 0; repeat < 30; ++repeat)
        comm->send(data.data(), count * 4, next, 100 + static_cast<std::uint64_t>(lane));
    } else {
      const std::int64_t sent = lane == 2 ? 14 : 30004;  // the number that the previous lane sends
      const auto expected = values_of<float>(previous, sent, seed - 1);
      for (int repeat = 0; repeat < 30; ++repeat) {
        std::vector<float> data(static_cast<std::size_t>(sent));
        comm->receive(data.data(), sent * 4, previous, 100 + static_cast<std::uint64_t>(lane - 1));
        ASSERT_TRUE(same_bits(data, expected)) << "lane " << lane;
      }
    }
  });
  comm->barrier(all_ranks(n), 77);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TEST(MpiComm, AWaitingRankUsesLittleOfACoreAndIsWokenSoon) {
  const auto comm = session->comm();
  const auto everyone = all_ranks(comm->size());
  double cpu = 1, delay = 1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    comm->barrier(everyone, 1);
    if (comm->rank() == 0) std::this_thread::sleep_for(1s);
    double entered = comm->rank() == 0 ? seconds_now() : 0;
    const Used used = measure([&] { comm->barrier(everyone, 2); });
    const double left = seconds_now();
    comm->all_reduce_sum(&entered, 1, DType::f64, everyone, 3);
    if (comm->rank() > 0) cpu = std::min(cpu, used.cpu / used.wall);
    delay = std::min(delay, left - entered);
  }
  if (comm->rank() > 0) {
    EXPECT_LT(cpu, 0.03);
  }
  EXPECT_LT(delay, 2e-3) << "the wait must be woken, not polled";
}

TEST(MpiComm, SteadyStateAllocatesNothing) {
  const auto comm = session->comm({.message_bytes = 50'000});
  const auto group = all_ranks(comm->size());
  std::vector<float> data(50'000, 1.0f);
  long before = 0;
  for (int round = 0; round < 10; ++round) {
    if (round == 2) before = allocations();
    comm->all_reduce_sum(data.data(), 50'000, DType::f32, group, 1, 3);
    comm->all_reduce_sum(data.data(), 10, DType::f32, group, 2);
    comm->barrier(group, 0xabcdef0123456789ull);
    if (comm->rank() == 0) comm->send(data.data(), 200'000, 1, 3);
    if (comm->rank() == 1) comm->receive(data.data(), 200'000, 0, 3);
  }
  EXPECT_EQ(allocations(), before);  // counts only operator new, not MPI's own allocations
}

TEST(MpiComm, AnAllReduceSaysWhenTheLastRankHadCalled) {
  const auto comm = session->comm();
  const auto everyone = all_ranks(comm->size());
  for (const std::int64_t count : {1, 100'000}) {
    auto data = values_of<float>(comm->rank(), count, run_seed());
    double called = 0;  // by the last rank, on the clock that all ranks of a machine share
    if (comm->rank() == comm->size() - 1) {
      std::this_thread::sleep_for(20ms);
      called = steady_seconds();
    }
    const double met = comm->all_reduce_sum(data.data(), count, DType::f32, everyone, 2);
    EXPECT_LE(met, steady_seconds());
    comm->all_reduce_sum(&called, 1, DType::f64, everyone, 3);
    EXPECT_GE(met, called) << "rank " << comm->rank();
  }
}

TEST(MpiComm, MessagesCanBeAsSlowAsOverALink) {
  const LinkModel link{2e-3, 100e6};
  const auto comm = session->comm({.link = link});
  const auto everyone = all_ranks(comm->size());
  comm->barrier(everyone, 1);
  auto data = values_of<float>(comm->rank(), 100'000, run_seed());
  const Used used = measure([&] { comm->all_reduce_sum(data.data(), 100'000, DType::f32, everyone, 2); });
  double last = 0;  // the ranks leave the barrier up to a latency apart
  for (int r = 0; r < comm->size(); ++r) {
    double theirs = used.wall;
    comm->broadcast(&theirs, sizeof theirs, r, everyone, 3);
    last = std::max(last, theirs);
  }
  EXPECT_GE(last,
            2 * link.latency + 2.0 * (comm->size() - 1) / comm->size() * 400'000 / link.bandwidth - 0.3e-3);
  EXPECT_TRUE(same_bits(data, left_fold<float>(everyone, 100'000, run_seed())));
}

// At least once: other programs share the machine.
TEST(MpiComm, SlowSumsTakeTheTimeOfTheirHops) {
  const LinkModel link{1e-3, 50e6};
  constexpr std::int64_t kCount = 1 << 20, kChunk = 128 << 10;
  const auto talk = session->comm();
  const auto everyone = all_ranks(talk->size());
  std::vector<float> data(kCount, 1);
  for (const CollectiveAlgorithm algorithm : {CollectiveAlgorithm::direct, CollectiveAlgorithm::ring}) {
    const auto comm = session->comm({.collective = algorithm, .link = link, .segment_bytes = kChunk});
    const double model = all_reduce_seconds(link, 4.0 * kCount, talk->size(), algorithm, kChunk);
    double best = 1e9;
    for (int attempt = 0; attempt < 40 && best > 1.05 * model; ++attempt) {
      talk->barrier(everyone, 1);
      const Used used = measure(
          [&] { comm->all_reduce_sum(data.data(), kCount, DType::f32, everyone, 2, 1 + attempt % 3); });
      double last = 0;
      for (int r = 0; r < talk->size(); ++r) {
        double theirs = used.wall;
        talk->broadcast(&theirs, sizeof theirs, r, everyone, 3);
        last = std::max(last, theirs);
      }
      EXPECT_GE(last, 0.95 * model);
      best = std::min(best, last);
    }
    EXPECT_LE(best, 1.05 * model);
  }
}

TEST(MpiSession, RanksAgreeOrSayWhoDiffers) {
  const auto agree = [](std::uint64_t data) { session->agree(std::vector<Agreed>{{"the data", data}}); };
  EXPECT_NO_THROW(agree(5));
  if (session->size() > 1)
    expect_error([&] { agree(session->rank() == 1 ? 6 : 5); },
                 {"the ranks disagree on the data", "rank 1 has another value than rank 0"});
}

TEST(MpiSession, KnowsItsRanksFromTheLauncherToo) {
  EXPECT_EQ(launch_environment().rank, session->rank());
  EXPECT_EQ(launch_environment().size, session->size());
  EXPECT_EQ(session->local_rank(), session->rank()) << "all ranks are on this machine";
}

// Every rank binds itself to one core of mpirun's, and then to all of them.
TEST(MpiSession, CountsTheRanksThatShareItsCores) {
  cpu_set_t before, all;
  ASSERT_EQ(0, sched_getaffinity(0, sizeof before, &before));
  ASSERT_EQ(0, sched_getaffinity(getppid(), sizeof all, &all));
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  const int rank = session->rank(), size = session->size(), n = static_cast<int>(cores.size());
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores[static_cast<std::size_t>(rank % n)], &one);
  ASSERT_EQ(0, sched_setaffinity(0, sizeof one, &one));
  const int on_one = session->ranks_on_these_cores();
  ASSERT_EQ(0, sched_setaffinity(0, sizeof all, &all));
  EXPECT_EQ((size - 1 - rank % n) / n + 1, on_one) << "ranks whose number has this remainder";
  EXPECT_EQ(size, session->ranks_on_these_cores());
  ASSERT_EQ(0, sched_setaffinity(0, sizeof before, &before));
}

}  // namespace

// Rank 1 has started, and does not come when the others agree on what they train.
int miss_the_agreement() {
  std::printf("pid %d\nend at %.3f\n", getpid(), seconds_now() + 1);  // by the deadline
  std::fflush(stdout);
  if (session->rank() == 1) std::this_thread::sleep_for(20s);
  session->agree(std::vector<Agreed>{{"the data", 5}});
  return 0;
}

// Every rank waits in a different kind of lane; rank 1 ends as `scene` says.
int play(const std::string& scene) {
  const auto comm = session->comm();
  const auto everyone = all_ranks(comm->size());
  std::printf("pid %d\n", getpid());
  std::fflush(stdout);
  comm->barrier(everyone, 1);
  if (comm->rank() == 1) {
    std::this_thread::sleep_for(300ms);
    std::printf("end at %.3f\n", seconds_now());
    std::fflush(stdout);
    if (scene == "kill") std::raise(SIGKILL);
    if (scene == "throw") throw Error("rank 1: this error unwinds main");
    if (scene == "abort") comm->abort("rank 1: the loss is NaN");
    if (scene == "mismatch") {
      std::vector<char> data(300'000);
      const std::string e = message_of<Error>([&] { comm->receive(data.data(), 200'000, 0, 4); });
      std::printf("told: %s\n", e.c_str());
      comm->abort(e);
    }
    std::fflush(stdout);
    std::this_thread::sleep_for(500ms);
    end_mpi_job(3);
  }
  std::vector<char> data(300'000);
  const std::string reason = message_of<Aborted>([&] {
    if (comm->rank() == 0)
      comm->send(data.data(), 300'000, 1, 4);
    else
      comm->all_reduce_sum(data.data(), 50'000, DType::f32, everyone, 5);
  });
  std::printf("rank %d aborted at %.3f: %s\n", comm->rank(), seconds_now(), reason.c_str());
  std::fflush(stdout);
  std::this_thread::sleep_for(20s);  // rank 1 ends it
  return 0;
}

}  // namespace tandem::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const bool misses = argc > 1 && argv[1] == std::string("miss");
  using namespace std::chrono_literals;
  tandem::engine::MpiStart start;
  if (misses) start = {.patience = 500ms, .deadline = 1s};
  tandem::engine::MpiSession session(start);
  tandem::testing::session = &session;
  if (misses) return tandem::testing::miss_the_agreement();
  if (argc > 1) return tandem::testing::play(argv[1]);
  {
    const auto comm = session.comm();
    std::uint64_t seed = comm->rank() == 0 ? tandem::testing::run_seed() : 0;  // ranks must use the same seed
    comm->all_reduce_sum(&seed, 1, tandem::DType::i64, tandem::testing::all_ranks(comm->size()), 0);
    setenv("TANDEM_SEED", fmt::format("{}", seed).c_str(), 1);
  }
  return RUN_ALL_TESTS();
}
