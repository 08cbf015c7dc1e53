// Properties of reductions, shapes, indices, images, and products that the op cases do not check.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/index.h>
#include <tandem/ops/init.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

#include "both_backends.h"
#include "expect_error.h"

namespace tandem::testing {
using namespace engine;
namespace {

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

TEST(ReduceTest, RefusesAVarianceOfTooFewElements) {
  for (const Shape& shape : {Shape{0}, Shape{1}})
    EXPECT_THROW(variance(Tensor::zeros({DType::f64, shape})), Error);
  EXPECT_EQ(0.5, variance(Tensor::from({1, 2}, {2})).item());
}

TEST(ReduceTest, TakesOneAxisOrSeveral) {
  const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ((std::vector<double>{6, 15}), sum(x, 1).values());
  EXPECT_EQ((std::vector<double>{6, 15}), sum(x, {-1}).values());
  EXPECT_EQ((Shape{1, 3}), mean(x, 0, /*keep_dims=*/true).shape());
  EXPECT_EQ((std::vector<double>{21}), sum(x, {0, 1}).values());
  EXPECT_EQ((std::vector<double>{21}), sum(x, std::vector{0, 1}).values());
  static_assert(!std::is_convertible_v<bool, Axes> && !std::is_convertible_v<double, Axes>);
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
    expect_error(run, {"index " + std::to_string(bad), "of sample 1, position 1,", "0 to 4"});
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
    expect_error([&] { embedding(table, ids); }, {words, "of sample 2"});
    expect_error([&] { one_hot(ids, 5); }, {words, "of sample 2"});
  };
  refuses(5, DType::i32, "index 5");
  refuses(-1, DType::i32, "index -1");
  refuses(5, DType::i64, "index 5");
  refuses(4294967296, DType::i64, "index 4294967296");  // 0 in 32 bits
  refuses(-4294967296, DType::i64, "index -4294967296");
  refuses(255, DType::u8, "index 255");
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
  const Tensor x = init::uniform({DType::f32, {2, 6, 8, 5}}, -1, 1, "x", 3);
  EXPECT_EQ(adaptive_avg_pool2d(x, {3, 2}).values(), avg_pool2d(x, {{2, 4}}).values());
  EXPECT_EQ(adaptive_max_pool2d(x, {3, 2}).values(), max_pool2d(x, {{2, 4}}).values());
  EXPECT_EQ(adaptive_max_pool2d(x, 1).values(), global_max_pool2d(x).values());
}

TEST(Matmul, RefusesEmptyOperands) {
  expect_error(
      [] {
        matmul(Tensor::zeros({DType::f32, {2, 3, 0}}), Tensor::zeros({DType::f32, {0, 4}}));
      },
      {"matmul", "empty"});
}

}  // namespace
}  // namespace tandem::testing
