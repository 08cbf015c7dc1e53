// Properties of dropout and noise, of the random numbers behind them, and of initial weights.
#include <array>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/philox.h>
#include <tandem/core/base/rng.h>
#include <tandem/ops/cpu/uniforms.h>
#include <tandem/ops/init.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>

#include "both_backends.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Runs dropout on rows as one replica and micro-batch of a Program does.
std::vector<float> dropped(const KernelTable& table, double p, const Tensor& rows, std::int64_t seed,
                           int replica, int microbatch, int microbatches, std::int64_t batch = 0,
                           std::uint64_t rng_id = 5) {
  const DropoutOp op(p);
  Tag tag;
  tag.rng_id = rng_id;
  tag.microbatch = microbatch;
  const Types in{rows.type(), {DType::i64, {}}}, out{rows.type()};
  const KernelPtr kernel = table.make({op, in, out, tag, 2, microbatches});
  RankContext rank;
  rank.replica = replica;
  std::vector<float> y(static_cast<std::size_t>(rows.elements()));
  const void* inputs[] = {rows.data(), &seed};
  void* outputs[] = {y.data()};
  kernel->run({inputs, outputs, nullptr, batch, &rank});
  return y;
}

TEST(DropoutTest, DrawsDependOnlyOnTheSample) {
  const Tensor x = Tensor::full({DType::f32, {8, 77}}, 1), part = Tensor::full({DType::f32, {2, 77}}, 1);
  for (const KernelTable* table : both_backends()) {
    const auto whole = dropped(*table, 0.4, x, 9, 0, 0, 1);
    std::vector<float> parts;  // two replicas of two micro-batches of two samples
    for (int replica : {0, 1})
      for (int microbatch : {0, 1})
        for (float v : dropped(*table, 0.4, part, 9, replica, microbatch, 2)) parts.push_back(v);
    EXPECT_EQ(whole, parts);
    EXPECT_NE(whole, dropped(*table, 0.4, x, 9, 0, 0, 1, 1)) << "another batch";
    EXPECT_NE(whole, dropped(*table, 0.4, x, 10, 0, 0, 1)) << "another seed";
    EXPECT_NE(whole, dropped(*table, 0.4, x, 9, 0, 0, 1, 0, 6)) << "another op";
  }
}

TEST(DropoutTest, KeepsTheGivenShareAndTheMean) {
  auto rng = generator("dropout");
  const Tensor x = Tensor::full({DType::f32, {500, 400}}, 1);
  for (double p : {0.1, 0.5, 0.9}) {
    const auto y = dropped(cpu_kernels(), p, x, static_cast<std::int64_t>(rng() >> 1), 0, 0, 1);
    double kept = 0, total = 0;
    for (float v : y) {
      EXPECT_TRUE(v == 0 || std::fabs(v - 1 / (1 - p)) < 1e-5);
      kept += v != 0;
      total += v;
    }
    const double n = static_cast<double>(y.size()), deviation = std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(kept / n, 1 - p, 6 * deviation);
    EXPECT_NEAR(total / n, 1, 6 * deviation / (1 - p));
  }
}

TEST(DropoutTest, ProbabilitiesOutsideZeroToOneAreRefused) {
  const Tensor x = Tensor::zeros({DType::f32, {2}}), seed = Tensor::zeros({DType::i64, {}});
  for (double p : {-0.1, 1.0, static_cast<double>(NAN)}) EXPECT_THROW(dropout(x, p, seed), Error);
}

TEST(NoiseTest, HasTheMomentsOfItsDistribution) {
  const Tensor seed = Tensor::from(std::vector<std::int64_t>{7}, {});
  for (const DType dtype : {DType::f32, DType::f64}) {
    const TensorType type{dtype, {100, 1000}};
    const Tensor u = uniform(type, seed), z = standard_normal(type, seed);
    const auto between = [](const Tensor& x) { return std::pair(min(x).item(), max(x).item()); };
    EXPECT_GE(between(u).first, 0);
    EXPECT_LT(between(u).first, 1e-3);
    EXPECT_LT(between(u).second, 1);
    EXPECT_GT(between(u).second, 1 - 1e-3);
    EXPECT_NEAR(mean(u).item(), 0.5, 5e-3);
    EXPECT_NEAR(mean(u * u).item(), 1.0 / 3, 5e-3);
    EXPECT_NEAR(mean(z).item(), 0, 2e-2);
    EXPECT_NEAR(mean(z * z).item(), 1, 2e-2);
    EXPECT_NEAR(mean(z * z * z * z).item(), 3, 0.1);
  }
  EXPECT_THROW(uniform({DType::i32, {2}}, seed), Error);
  EXPECT_THROW(uniform({DType::f32, {}}, seed), Error);
}

// The known answers published with the generator (Random123, kat_vectors).
TEST(UniformsTest, PhiloxGivesThePublishedWords) {
  using Words = std::array<std::uint32_t, 4>;
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformsTest, MatchTheGenerator) {
  auto rng = generator("uniforms");
  for (int round = 0; round < 50; ++round) {
    const RngKey key{rng(), rng(), rng()};
    const std::uint64_t sample = draw_bool(rng, 0.5) ? rng() % 100 : rng();
    const std::int64_t quads = draw_int(rng, 1, 200), first = draw_int(rng, 0, 100000);
    float draws[4 * kQuads];
    uniforms(key, sample, quads, first, draws);
    for (std::int64_t i = 0; i < 4 * kQuads; ++i) {
      const std::int64_t q = first + i / 4;
      ASSERT_EQ(draws[i], uniform(key, sample + static_cast<std::uint64_t>(q / quads),
                                  static_cast<std::uint64_t>(q % quads * 4 + i % 4)));
    }
  }
}

TEST(InitTest, HasTheGivenMoments) {
  const std::uint64_t seed = run_seed();
  const TensorType type{DType::f32, {200, 300}};
  const auto check = [&](const Tensor& t, double mean, double variance) {
    const auto v = t.values();
    const double n = static_cast<double>(v.size()), m = std::accumulate(v.begin(), v.end(), 0.0) / n;
    double square = 0;
    for (double x : v) square += (x - m) * (x - m);
    EXPECT_NEAR(m, mean, 6 * std::sqrt(variance / n));
    EXPECT_NEAR(square / n, variance, 0.05 * variance);
  };
  check(init::uniform(type, -1, 3, "u", seed), 1, 16.0 / 12);
  check(init::normal(type, 2, 0.5, "n", seed), 2, 0.25);
  check(init::truncated_normal(type, 0.02, 2, "t", seed), 0, 0.0004 * 0.7737);
  for (const double cut : {0.0, -1.0, std::nan("")})
    EXPECT_THROW(init::truncated_normal(type, 1, cut, "t", seed), Error) << cut;
}

TEST(InitTest, DependsOnlyOnPathAndSeed) {
  const TensorType type{DType::f32, {3, 4}};
  const auto first = init::normal(type, 0, 1, "layer1.weight", 7).values();
  EXPECT_EQ(first, init::normal(type, 0, 1, "layer1.weight", 7).values());
  EXPECT_NE(first, init::normal(type, 0, 1, "layer2.weight", 7).values());
  EXPECT_NE(first, init::normal(type, 0, 1, "layer1.weight", 8).values());
  EXPECT_THROW(init::normal({DType::i32, {2}}, 0, 1, "layer1.count", 7), Error);
}

}  // namespace
}  // namespace tandem::testing
