// Properties of reductions, losses, dropout, initial weights, and updates that the op cases do not check.
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include <tandem/autograd/gradient.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/philox.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/cpu/uniforms.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/index.h>
#include <tandem/ops/init.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/ops/update.h>

#include "expect_error.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

const std::vector<const KernelTable*>& both_backends() {
  static const std::vector<const KernelTable*> tables{&reference_kernels(), &cpu_kernels()};
  return tables;
}

TEST(ReduceTest, GradientOfAMaximumGoesToTheFirst) {
  const Tensor x = Tensor::from({1, 3, 3, 3, 2, 3}, {2, 3});
  EXPECT_EQ(apply_op1(std::make_shared<FirstExtremeOp>(Reduction::max, std::vector<int>{1}), {x}).values(),
            (std::vector<double>{0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(argmax(x).values(), (std::vector<double>{1, 0}));
  EXPECT_EQ(argmax(x, 0).values(), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(argmin(x, -1).values(), (std::vector<double>{0, 1}));
  EXPECT_EQ(apply_op1(std::make_shared<FirstExtremeOp>(Reduction::min, std::vector<int>{0}), {x}).values(),
            (std::vector<double>{1, 0, 1, 0, 1, 0}));
}

TEST(ReduceTest, SumsOfManyFloatsKeepTheirPrecision) {
  const Tensor x = Tensor::full({DType::f32, {1 << 20, 3}}, 0.1f);
  const double exact = static_cast<double>(0.1f) * (1 << 20);
  for (double v : sum(x, {0}).values()) EXPECT_NEAR(v, exact, 1e-6 * exact);
  EXPECT_NEAR(mean(x).item(), static_cast<double>(0.1f), 1e-7);
}

TEST(ReduceTest, NaNIsTheExtreme) {
  for (const Shape& shape : {Shape{5}, Shape{700}}) {
    Tensor x = Tensor::zeros({DType::f32, shape});
    x.as<float>()[1] = 5;
    for (int i : {3, 4}) x.as<float>()[i] = NAN;
    EXPECT_TRUE(std::isnan(max(x).item()));
    EXPECT_TRUE(std::isnan(min(x).item()));
    EXPECT_EQ(argmax(x).item(), 3);
    EXPECT_EQ(argmin(x).item(), 3);
    EXPECT_EQ(
        apply_op1(std::make_shared<FirstExtremeOp>(Reduction::max, std::vector<int>{0}), {x}).values()[3], 1);
  }
}

TEST(ReduceTest, InvalidArgumentsAreRefused) {
  const Tensor x = Tensor::zeros({DType::f32, {2, 3}});
  EXPECT_THROW(sum(x, {2}), Error);
  EXPECT_THROW(sum(x, {0, 0}), Error);
  EXPECT_THROW(mean(Tensor::zeros({DType::i32, {2}})), Error);
  EXPECT_THROW(max(Tensor::zeros({DType::f32, {0}})), Error);
  EXPECT_THROW(max(Tensor::zeros({DType::f32, {3, 0}}), {1}), Error);
  EXPECT_EQ(max(Tensor::zeros({DType::f32, {0, 3}}), {1}).shape(), Shape{0});
  EXPECT_THROW(sum_to(x, {2}), Error);
  EXPECT_THROW(argmax(Tensor::zeros({DType::f32, {}})), Error);
  EXPECT_THROW(argmin(Tensor::zeros({DType::f32, {3, 0}}), 1), Error);
  EXPECT_THROW(argmin(x, 2), Error);
  EXPECT_THROW(variance(Tensor::zeros({DType::f32, {3, 1}}), {1}), Error);
  EXPECT_EQ(variance(Tensor::zeros({DType::f32, {3, 1}}), {1}, /*unbiased=*/false).values(),
            std::vector<double>(3));
}

TEST(ReduceTest, NormOfZerosHasTheGradientZero) {
  Tensor x = Tensor::from({0, 0, 3, -4}, {2, 2}, DType::f64);
  x.requires_grad();
  const Tensor y = l2_norm(x, {1});
  EXPECT_EQ(y.values(), (std::vector<double>{0, 5}));
  sum(y).backward();
  const std::vector<double> expected{0, 0, 0.6, -0.8};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(x.grad().values()[i], expected[i], 1e-15);
}

TEST(ShapeTest, AStepBeyondTheAxisTakesOneElement) {
  Tensor x = Tensor::from({1, 2, 3, 4}, {2, 2}, DType::f64);
  x.requires_grad();
  const Tensor y = slice(x, 0, 1, 2, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ((std::vector<double>{3, 4}), y.values());
  sum(y).backward();
  EXPECT_EQ((std::vector<double>{0, 0, 1, 1}), x.grad().values());
}

TEST(WindowTest, NumbersOutOfRangeAreRefusedBeforeTheyOverflow) {
  const std::int64_t huge = std::int64_t{1} << 62;
  for (const Window& w : {Window{.kernel = huge, .dilation = 4}, Window{.kernel = 3, .dilation = huge},
                          Window{.kernel = 3, .padding = huge}, Window{.kernel = 3, .stride = huge}})
    expect_error([&] { w.positions({8, 8}); }, {"height", "none above"});
}

TEST(ShapeTest, InvalidArgumentsAreRefused) {
  const Tensor x = Tensor::zeros({DType::f32, {2, 3}});
  EXPECT_THROW(reshape(x, {4, 2}), Error);
  EXPECT_THROW(reshape(x, {4, -1}), Error);
  EXPECT_THROW(transpose(x, {0, 0}), Error);
  EXPECT_THROW(concat({x, Tensor::zeros({DType::f32, {2, 3, 1}})}, 0), Error);
  EXPECT_THROW(concat({x, Tensor::zeros({DType::f32, {3, 3}})}, 1), Error);
  EXPECT_THROW(slice(x, 1, 2, 4), Error);
  EXPECT_THROW(slice(x, 1, 1, 1), Error);
  EXPECT_THROW(slice(x, 1, 0, 2, 0), Error);
  expect_error([&] { slice(x, 1, 0, 2, -1); }, {"steps of -1", "flip"});
  expect_error([&] { slice(x, {{0, 0, 1}, {-2, 0, 1}}); }, {"axis 0", "twice"});
  EXPECT_THROW(broadcast_to(x, {3, 3}), Error);
  EXPECT_THROW(reshape(x, {-2, -3}), Error);
  EXPECT_THROW(reshape(x, {-1, -6}), Error);
  EXPECT_THROW(reshape(Tensor::zeros({DType::f32, {0, 3}}), {0, -1}), Error);
  EXPECT_THROW(broadcast_to(x, {-1, 2, 3}), Error);
  EXPECT_EQ(flatten(Tensor::zeros({DType::f32, {2, 3, 4, 5}})).shape(), (Shape{2, 60}));
  EXPECT_EQ(flatten(Tensor::zeros({DType::f32, {0, 3, 4}})).shape(), (Shape{0, 12}));
}

TEST(ShapeTest, InvalidSplitsAndStacksAreRefused) {
  const Tensor x = Tensor::zeros({DType::f32, {2, 3}}), y = Tensor::zeros({DType::f32, {3, 2}});
  EXPECT_THROW(split(x, {1, 1}, 1), Error);
  EXPECT_THROW(split(x, {0, 3}, 1), Error);
  EXPECT_THROW(stack({x, y}, 0), Error);
  EXPECT_THROW(stack({}, 0), Error);
  EXPECT_THROW(stack({x}, 3), Error);
  EXPECT_THROW(flip(x, {0, -2}), Error);
  EXPECT_EQ(stack({x, x}, -1).shape(), (Shape{2, 3, 2}));
}

TEST(IndexTest, IndicesOutsideTheRangeAreNamedAndNotRead) {
  const Tensor x = Tensor::zeros({DType::f32, {5, 2}}), two = Tensor::zeros({DType::f32, {2, 2}});
  const auto expect_named = [](int bad, const auto& run) {
    expect_error(run, {"index " + std::to_string(bad), "number 3", "0 to 4"});
  };
  for (int bad : {5, -1, 2147483647}) {
    const Tensor index = Tensor::from({0, 4, 1, static_cast<double>(bad)}, {2, 2}, DType::i32);
    for (const KernelTable* table : both_backends()) {
      const auto run = [&](const OpPtr& op, const Tensors& in) { return [=] { evaluate(*table, op, in); }; };
      expect_named(bad, run(std::make_shared<GatherOp>(0), {x, index}));
      expect_named(bad, run(std::make_shared<ScatterAddOp>(0, 5), {two, index}));
      expect_named(bad, run(std::make_shared<EmbeddingOp>(), {x, index}));
      expect_named(
          bad, run(std::make_shared<EmbeddingGradOp>(5), {Tensor::zeros({DType::f32, {2, 2, 3}}), index}));
      expect_named(bad, run(std::make_shared<OneHotOp>(5, DType::f32), {index}));
    }
  }
}

TEST(IndexTest, IndicesOfEachIntegerTypeAreChecked) {
  const Tensor table = Tensor::zeros({DType::f32, {5, 2}});
  const auto refuses = [&](double id, DType dtype, const char* words) {
    const Tensor ids = Tensor::from({0, 4, id}, {3}, dtype);
    expect_error([&] { embedding(table, ids); }, {words, "number 2 of 3"});
    expect_error([&] { one_hot(ids, 5); }, {words, "number 2 of 3"});
  };
  refuses(5, DType::i32, "index 5");
  refuses(-1, DType::i32, "index -1");
  refuses(5, DType::i64, "index 5");
  refuses(4294967296, DType::i64, "index 4294967296");  // 0 in 32 bits
  refuses(-4294967296, DType::i64, "index -4294967296");
  refuses(255, DType::u8, "index 255");
}

TEST(LossTest, OfNoSampleThatCountsIsZero) {
  Tensor logits = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3}).requires_grad();
  const Tensor loss = cross_entropy(logits, Tensor::full({DType::i64, {2}}, -100), {.ignore_index = -100});
  loss.backward();
  EXPECT_EQ(0, loss.item());
  EXPECT_EQ(std::vector<double>(6), logits.grad().values());
}

TEST(LossTest, LabelsAreCheckedInEachIntegerType) {
  const Tensor logits = Tensor::zeros({DType::f32, {2, 3}});
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    const Tensor labels = Tensor::from({1, 3}, {2}, dtype);
    expect_error([&] { cross_entropy(logits, labels); }, {"label of sample 1 is 3", "3 classes"});
    expect_error([&] { cross_entropy(logits, labels, {.ignore_index = 0}); }, {"index 3", "0 to 2"});
  }
  expect_error(
      [&] {
        cross_entropy(logits, Tensor::zeros({DType::i32, {3}}));
      },
      {"labels for f32[2, 3]", "i32[2]", "i32[3]"});
  expect_error(
      [&] {
        cross_entropy(logits, Tensor::zeros({DType::i32, {2}}), {.class_weights = logits});
      },
      {"class weights", "f32[3]", "f32[2, 3]"});
}

TEST(IndexTest, InvalidArgumentsAreRefused) {
  const Tensor x = Tensor::zeros({DType::f32, {5, 2}}), ids = Tensor::zeros({DType::i32, {3, 2}});
  EXPECT_THROW(gather(x, 1, ids), Error);
  EXPECT_THROW(gather(x, 0, cast(ids, DType::f32)), Error);
  EXPECT_THROW(scatter_add(x, 0, ids, x), Error);
  EXPECT_THROW(scatter_add(Tensor::zeros({DType::f64, {5, 2}}), 0, ids, Tensor::zeros({DType::f32, {3, 2}})),
               Error);
  EXPECT_THROW(embedding(x, x), Error);
  EXPECT_THROW(embedding(Tensor::zeros({DType::f32, {}}), ids), Error);
  EXPECT_THROW(one_hot(ids, 0), Error);
}

TEST(ImageTest, InvalidArgumentsAreRefused) {
  const Tensor x = Tensor::zeros({DType::f32, {1, 3, 3, 4}}), w = Tensor::zeros({DType::f32, {4, 3, 3, 2}});
  EXPECT_EQ(conv_transpose2d(x, w, {}, {.stride = 2, .padding = 1, .output_padding = 1}).shape(),
            (Shape{1, 6, 6, 2}));
  EXPECT_EQ(conv_transpose2d(x, w, {}, {.groups = 2}).shape(), (Shape{1, 5, 5, 4}));
  EXPECT_THROW(conv_transpose2d(x, w, {}, {.stride = 2, .output_padding = 2}), Error);
  EXPECT_THROW(conv_transpose2d(x, w, {}, {.padding = 3}), Error);
  EXPECT_THROW(conv_transpose2d(x, w, {}, {.groups = 3}), Error);
  EXPECT_THROW(conv_transpose2d(x, Tensor::zeros({DType::f32, {2, 3, 3, 4}})), Error);
  for (const std::int64_t huge : {std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_THROW(conv_transpose2d(x, w, {}, {.stride = huge}), Error);
    EXPECT_THROW(conv_transpose2d(x, w, {}, {.padding = huge}), Error);
    EXPECT_THROW(conv_transpose2d(x, w, {}, {.dilation = huge}), Error);
    EXPECT_THROW(conv2d_grad_input(x, w, {huge, 5}, {.padding = 1}), Error);
    EXPECT_THROW(conv2d(x, w, {}, {.padding = huge}), Error);
  }
  for (const std::int64_t groups :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_THROW(conv2d(x, w, {}, {.groups = groups}), Error);
    EXPECT_THROW(conv_transpose2d(x, w, {}, {.groups = groups}), Error);
    EXPECT_THROW(conv2d_grad_input(x, w, {5, 5}, {.groups = groups}), Error);
    EXPECT_THROW(conv2d_grad_weight(x, x, 3, false, {.groups = groups}), Error);
  }
  EXPECT_THROW(conv_transpose2d(x, w, Tensor::zeros({DType::f32, {4}})), Error);
  EXPECT_THROW(adaptive_avg_pool2d(x, {0, 1}), Error);
  EXPECT_THROW(adaptive_max_pool2d(x, -1), Error);
  EXPECT_THROW(adaptive_avg_pool2d(Tensor::zeros({DType::f32, {3, 4}}), 1), Error);
}

// Adaptive windows of equal size equal a sliding window.
TEST(ImageTest, AdaptivePoolingOfAMultipleIsPooling) {
  const Tensor x = uniform({DType::f32, {2, 6, 8, 5}}, -1, 1, "x", 3);
  EXPECT_EQ(adaptive_avg_pool2d(x, {3, 2}).values(), avg_pool2d(x, {{2, 4}}).values());
  EXPECT_EQ(adaptive_max_pool2d(x, {3, 2}).values(), max_pool2d(x, {{2, 4}}).values());
  EXPECT_EQ(adaptive_max_pool2d(x, 1).values(), global_max_pool2d(x).values());
}

TEST(LossTest, CrossEntropyOfKnownLogits) {
  const Tensor logits = Tensor::from({1, 2, 3, 1000, 0, -1000}, {2, 3}),
               labels = Tensor::from({2, 1}, {2}, DType::i32);
  for (const KernelTable* table : both_backends()) {
    const double loss = evaluate(*table, std::make_shared<CrossEntropyOp>(), {logits, labels})[0].item();
    EXPECT_NEAR(loss, (0.40760596444438 + 1000) / 2, 1e-4);
  }
}

// A logarithm of a few units is lost next to a maximum of 1e30, unless the maximum is subtracted first.
TEST(LossTest, LargeEqualLogitsShareTheProbability) {
  const Tensor logits = Tensor::from({1e30, -1e30, 1e30, -INFINITY}, {1, 4}),
               label = Tensor::from({2}, {1}, DType::i32), g = Tensor::full({DType::f32, {}}, 1);
  const auto expect = [](const Tensor& t, const std::vector<double>& values) {
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(t.values()[i] == values[i] || std::fabs(t.values()[i] - values[i]) < 1e-6) << t.values()[i];
  };
  for (const KernelTable* table : both_backends()) {
    const auto run = [&](const OpPtr& op, const Tensors& in) { return evaluate(*table, op, in)[0]; };
    expect(run(std::make_shared<SoftmaxOp>(false), {logits}), {0.5, 0, 0.5, 0});
    const Tensor logs = run(std::make_shared<SoftmaxOp>(true), {logits});
    expect(slice(logs, 1, 2, 4), {-std::log(2), -INFINITY});
    EXPECT_EQ(logs.values()[0], logs.values()[2]);
    EXPECT_NEAR(logs.values()[1], -2e30, 1e24);
    expect(run(std::make_shared<CrossEntropyOp>(), {logits, label}), {std::log(2)});
    expect(run(std::make_shared<CrossEntropyGradOp>(), {logits, label, g}), {0.5, 0, -0.5, 0});
  }
}

TEST(LossTest, ALabelOutsideTheClassesIsNamedAndNotRead) {
  const Tensor logits = Tensor::zeros({DType::f32, {3, 10}}), g = Tensor::full({DType::f32, {}}, 1);
  for (double bad : {10.0, -1.0, 2147483647.0})
    for (const KernelTable* table : both_backends()) {
      const Tensor labels = Tensor::from({0, bad, 9}, {3}, DType::i32);
      EXPECT_THROW(evaluate(*table, std::make_shared<CrossEntropyGradOp>(), {logits, labels, g}), Error);
      expect_error(
          [&] {
            evaluate(*table, std::make_shared<CrossEntropyOp>(), {logits, labels});
          },
          {"sample 1", std::to_string(static_cast<int>(bad)), "10 classes"});
    }
}

// Values of the formulas in exact arithmetic, at points where the naive formulas overflow or cancel.
TEST(LossTest, LargeLogitsKeepTheirPrecision) {
  const auto loss = [](double x, double t) {
    return bce_with_logits(Tensor::from({x}, {1}), Tensor::from({t}, {1})).item();
  };
  EXPECT_EQ(loss(200, 0), 200);
  EXPECT_EQ(loss(-200, 1), 200);
  for (double t : {0.0, 1.0}) {
    const double right = t == 1 ? 20 : -20;
    EXPECT_NEAR(loss(right, t), std::log1p(std::exp(-20.0)), 1e-14);
    EXPECT_NEAR(loss(right, 1 - t), 20, 1e-6);
  }
}

TEST(LossTest, AZeroLogitHasItsGradient) {
  Tensor x = Tensor::zeros({DType::f64, {2}});
  x.requires_grad();
  bce_with_logits(x, Tensor::from({0, 1}, {2}, DType::f64)).backward();
  EXPECT_EQ(x.grad().values(), (std::vector<double>{0.25, -0.25}));
}

TEST(LossTest, InvalidArgumentsAreRefused) {
  const Tensor labels = Tensor::zeros({DType::i32, {3}});
  const Tensor a = Tensor::zeros({DType::f32, {3, 2}}), b = Tensor::zeros({DType::f32, {2}});
  for (auto* f : {bce_with_logits, mse_loss, l1_loss}) EXPECT_THROW(f(a, b), Error);
  EXPECT_THROW(mse_loss(labels, labels), Error);
  EXPECT_THROW(smooth_l1_loss(a, a, 0), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::f32, {3, 2}}), labels, 1.1), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::f32, {3, 2}}), labels, NAN), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::f32, {4, 10}}), labels), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::bf16, {3, 10}}), labels), Error);
  EXPECT_THROW(cross_entropy(Tensor::zeros({DType::f32, {3}}), labels), Error);
}

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
  check(uniform(type, -1, 3, "u", seed), 1, 16.0 / 12);
  check(normal(type, 2, 0.5, "n", seed), 2, 0.25);
  check(truncated_normal(type, 0.02, 2, "t", seed), 0, 0.0004 * 0.7737);
  for (const double cut : {0.0, -1.0, std::nan("")})
    EXPECT_THROW(truncated_normal(type, 1, cut, "t", seed), Error) << cut;
}

TEST(InitTest, DependsOnlyOnPathAndSeed) {
  const TensorType type{DType::f32, {3, 4}};
  const auto first = normal(type, 0, 1, "layer1.weight", 7).values();
  EXPECT_EQ(first, normal(type, 0, 1, "layer1.weight", 7).values());
  EXPECT_NE(first, normal(type, 0, 1, "layer2.weight", 7).values());
  EXPECT_NE(first, normal(type, 0, 1, "layer1.weight", 8).values());
  EXPECT_THROW(normal({DType::i32, {2}}, 0, 1, "layer1.count", 7), Error);
}

// By the formula of torch.optim.SGD: w = (1, −2), gradients (0.5, 1), then (−0.25, 0.5); learning rate 0.1,
// momentum 0.9, weight decay 0.01.
TEST(UpdateTest, TwoStepsFollowTheFormula) {
  const auto pair = [](double a, double b) { return Tensor::from({a, b}, {2}, DType::f64); };
  const Tensor lr = Tensor::from({0.1}, {}, DType::f64);
  const auto two_steps = [&](bool nesterov) {
    const SgdOptions options{0.9, 0.01, nesterov};
    Tensors state = sgd_update(pair(1, -2), pair(0, 0), pair(0.5, 1), lr, options);
    state = sgd_update(state[0], state[1], pair(-0.25, 0.5), lr, options);
    return state[0].values();
  };
  EXPECT_NEAR(two_steps(false)[0], 0.927151, 1e-12);
  EXPECT_NEAR(two_steps(false)[1], -2.234102, 1e-12);
  EXPECT_NEAR(two_steps(true)[0], 0.90757411, 1e-12);
  EXPECT_NEAR(two_steps(true)[1], -2.35642622, 1e-12);
}

// In f32, 0.9999 is 0.99989998, and 1 minus that is not 0.0001.
TEST(UpdateTest, AdamInF32FollowsTheFormulaForBetasCloseToOne) {
  const auto two_steps = [](DType dtype, double beta2) {
    const auto values = [&](const std::vector<double>& v) { return Tensor::from(v, {2}, dtype); };
    const AdamOptions options{.beta2 = beta2};
    Tensors state{values({0, 0}), values({0, 0}), values({0, 0}), Tensor::zeros({DType::f32, {}})};
    for (const auto& g : {values({0.5, -3}), values({-0.25, 1})})
      state = adam_update(state[0], state[1], state[2], g, state[3], Tensor::from({0.1}, {}), options);
    return state;
  };
  for (const double beta2 : {0.99, 0.9999, 0.999999, 0.999999999})
    for (const std::size_t k : {0, 2}) {
      const std::vector<double> exact = two_steps(DType::f64, beta2)[k].values();
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(two_steps(DType::f32, beta2)[k].values()[i], exact[i], 1e-6 * std::abs(exact[i]))
            << "output " << k << ", beta2 " << beta2;
    }
}

TEST(UpdateTest, InvalidArgumentsAreRefused) {
  const Tensor w = Tensor::zeros({DType::f32, {2, 3}}), lr = Tensor::zeros({DType::f32, {}});
  EXPECT_THROW(sgd_update(w, w, w, lr, {}), Error);
  EXPECT_THROW(sgd_update(w, w, lr, {.momentum = 0.9}), Error);
  EXPECT_THROW(sgd_update(w, w, lr, {.nesterov = true}), Error);
  EXPECT_THROW(sgd_update(w, Tensor::zeros({DType::f32, {3, 2}}), lr), Error);
  EXPECT_THROW(sgd_update(w, w, Tensor::zeros({DType::f32, {3}})), Error);
  EXPECT_THROW(predict(w, w, Tensor::zeros({DType::i32, {}})), Error);
}

TEST(CrossEntropy, DoesNotLookAtIgnoredSamples) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const double value : {-inf, inf, nan})
    for (const double smoothing : {0.0, 0.1}) {
      Tensor logits = Tensor::from({value, 1, 2, 0.5, 0.25, 0}, {2, 3}, DType::f64);
      logits.requires_grad();
      const Tensor loss = cross_entropy(logits, Tensor::from({1, 2}, {2}, DType::i32),
                                        {.label_smoothing = smoothing, .ignore_index = 1});
      loss.backward();
      const Tensor one = logits[1];
      EXPECT_NEAR(loss.item(),
                  cross_entropy(reshape(one, {1, 3}), Tensor::from({2}, {1}, DType::i32), smoothing).item(),
                  1e-14);
      for (const double g : logits.grad()[0].values()) EXPECT_EQ(g, 0);
    }
}

TEST(Matmul, RefusesEmptyOperands) {
  expect_error(
      [] {
        matmul(Tensor::zeros({DType::f32, {2, 3, 0}}), Tensor::zeros({DType::f32, {0, 4}}));
      },
      {"matmul", "empty"});
}

TEST(Gradient, RefusesAnUndefinedTensor) {
  Tensor x = Tensor::full({DType::f64, {}}, 2);
  x.requires_grad();
  expect_error([&] { gradient(x * x, {x, Tensor()}); }, {"x[1]", "undefined"});
}

}  // namespace
}  // namespace tandem::testing
