#pragma once
#include <time.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/runtime/comm.h>
#include <tandem/dist/thread_comm.h>

#include "expect_error.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;

/// The values that rank `rank` adds to a sum. They have many magnitudes, so that another order of addition
/// gives other bits.
template <class T> std::vector<T> values_of(int rank, std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 rng(seed * 1000003 + static_cast<std::uint64_t>(rank));
  std::uniform_real_distribution<double> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-20, 20);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& v : values) v = static_cast<T>(std::ldexp(mantissa(rng), exponent(rng)));
  if (count > 2) values[2] = static_cast<T>(-0.0);  // -0 + -0 is -0: detects a fold that starts from 0
  return values;
}

/// ((v0 + v1) + v2) + ... over the ranks of `group`.
template <class T>
std::vector<T> left_fold(const std::vector<int>& group, std::int64_t count, std::uint64_t seed) {
  std::vector<T> sum = values_of<T>(group[0], count, seed);
  for (std::size_t r = 1; r < group.size(); ++r) {
    const std::vector<T> next = values_of<T>(group[r], count, seed);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<T>(sum[i] + next[i]);
  }
  return sum;
}

template <class T> bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

inline std::vector<int> all_ranks(int n) {
  std::vector<int> ranks(static_cast<std::size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Runs `work` as every rank of a world of threads. The first exception aborts the world and is thrown here.
inline void run_ranks(int size, const std::function<void(Comm&)>& work, const CommOptions& options = {}) {
  ThreadWorld world(size);
  std::vector<std::thread> threads;
  std::exception_ptr first;
  std::mutex mutex;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const auto comm = world.comm(rank, options);
      try {
        work(*comm);
      } catch (const std::exception& e) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        world.abort(e.what());
      }
    });
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

/// Checks reduce-scatters and all-gathers of many sizes over all ranks; every rank must call.
inline void expect_slices(Comm& comm, std::uint64_t channel) {
  const auto n = static_cast<std::size_t>(comm.size());
  for (const std::int64_t count : {0, 1, 2, 3, 5, 1000, 8193, 300007}) {
    const auto expected = left_fold<float>(all_ranks(comm.size()), count, run_seed());
    const auto slice = [&](std::size_t r) {
      return std::pair{static_cast<std::int64_t>(r) * count / comm.size(),
                       static_cast<std::int64_t>(r + 1) * count / comm.size()};
    };
    auto data = values_of<float>(comm.rank(), count, run_seed());
    comm.reduce_scatter_sum(data.data(), count, DType::f32, all_ranks(comm.size()), channel, 2);
    const auto [begin, end] = slice(static_cast<std::size_t>(comm.rank()));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (i < begin || i >= end)
        data[at] = -1;
      else
        ASSERT_EQ(data[at], expected[at]) << "rank " << comm.rank() << ", element " << i << " of " << count;
    }
    comm.all_gather(data.data(), count, DType::f32, all_ranks(comm.size()), channel);
    EXPECT_TRUE(same_bits(data, expected)) << "rank " << comm.rank() << " of " << n << ", count " << count;
  }
}

/// Checks broadcasts of many sizes from every rank; every rank must call.
inline void expect_broadcasts(Comm& comm, std::uint64_t channel) {
  for (const std::int64_t count : {0, 1, 7, 8193, 300007})
    for (int root = 0; root < comm.size(); ++root) {
      auto data = values_of<double>(comm.rank(), count, run_seed());
      comm.broadcast(data.data(), count * 8, root, all_ranks(comm.size()), channel);
      EXPECT_TRUE(same_bits(data, values_of<double>(root, count, run_seed())))
          << "rank " << comm.rank() << " of " << comm.size() << ", root " << root << ", count " << count;
    }
}

/// Runs `lanes` threads of one rank. Their exceptions are thrown here.
inline void run_lanes(int lanes, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(lanes));
  for (int lane = 0; lane < lanes; ++lane)
    threads.emplace_back([&, lane] {
      try {
        work(lane);
      } catch (...) {
        errors[static_cast<std::size_t>(lane)] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& e : errors)
    if (e) std::rethrow_exception(e);
}

/// Wall and CPU seconds of the calling thread.
struct Used {
  double wall, cpu;
};
inline Used measure(const std::function<void()>& work) {
  const auto cpu_now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const auto start = std::chrono::steady_clock::now();
  const double cpu = cpu_now();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), cpu_now() - cpu};
}

}  // namespace tandem::testing
