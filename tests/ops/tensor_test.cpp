// Indexing, items and text of Tensors.
#include <cmath>

#include <gtest/gtest.h>

#include <tandem/core/graph/trace.h>
#include <tandem/ops/shape.h>

#include "expect_error.h"

namespace tandem::testing {
using namespace engine;
namespace {

TEST(IndexingTest, FollowsNumPy) {
  const Tensor x = arange(0, 24, 1, DType::f32), cube = reshape(x, {2, 3, 4});
  EXPECT_EQ(cube[-1][0].values(), (std::vector<double>{12, 13, 14, 15}));
  EXPECT_EQ(cube(1, -1, 2).item<int>(), 22);
  EXPECT_EQ(cube(Slice{}, 0, Slice{1, -1}).values(), (std::vector<double>{1, 2, 13, 14}));
  EXPECT_EQ(cube(0, Slice{.step = 2}).shape(), (Shape{2, 4}));
  EXPECT_EQ(x(Slice{-100, 100, 10}).values(), (std::vector<double>{0, 10, 20}));
  expect_error([&] { cube[2]; }, {"index 2", "axis 0", "f32[2, 3, 4]"});
  expect_error([&] { cube(0, -4); }, {"index -4", "axis 1"});
  expect_error([&] { cube(0, 0, 0, 0); }, {"4 axes", "f32[2, 3, 4]"});
  expect_error([&] { cube(Slice{1, 1}); }, {"empty", "axis 0"});
  expect_error([&] { cube(Slice{0, 2, 0}); }, {"step 0", "flip()"});
}

TEST(ItemTest, IsTheElementInATypeThatHoldsIt) {
  EXPECT_EQ(Tensor::full({DType::i64, {}}, 7).item<int>(), 7);
  Tensor large = Tensor::zeros({DType::i64, {1}});
  large.as<std::int64_t>()[0] = 9007199254740993;  // no double
  EXPECT_EQ(large.item<std::int64_t>(), 9007199254740993);
  EXPECT_EQ(Tensor::full({DType::f32, {}}, 2.5).item<float>(), 2.5F);
  EXPECT_TRUE(Tensor::full({DType::b8, {}}, 1).item<bool>());
  expect_error([&] { Tensor::full({DType::f32, {}}, 2.5).item<int>(); }, {"f32[]", "2.5"});
  expect_error([&] { large.item<int>(); }, {"i64[1]", "does not fit"});
  expect_error([&] { Tensor::full({DType::i32, {}}, -1).item<unsigned>(); }, {"-1"});
  expect_error([&] { Tensor::full({DType::f64, {}}, NAN).item<int>(); }, {"nan"});
  expect_error([&] { Tensor::zeros({DType::f32, {2}}).item(); }, {"f32[2]", "one element"});
}

TEST(TensorFrom, KeepsTheTypeOfAVector) {
  EXPECT_EQ(to_string(Tensor::from(std::vector<float>{1, 2}, {2}).type()), "f32[2]");
  EXPECT_EQ(to_string(Tensor::from(std::vector<int>{1, 2}, {2, 1}).type()), "i32[2, 1]");
  const std::int64_t large = (std::int64_t{1} << 60) + 1;  // no double has this value
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{large}, {1});
  EXPECT_EQ(ids.as<std::int64_t>()[0], large);
  EXPECT_EQ(to_string(Tensor::from({1, 2}, {2}).type()), "f32[2]");
  EXPECT_THROW(Tensor::from(std::vector<int>{1, 2}, {3}), Error);
}

TEST(TensorText, ShowsTypeAndElements) {
  EXPECT_EQ(to_string(Tensor::from({1, 2.5, -3, 4}, {2, 2})), "f32[2, 2]\n[[1, 2.5],\n [-3, 4]]");
  EXPECT_EQ(to_string(Tensor::full({DType::i64, {}}, 3)), "i64[] 3");
  EXPECT_EQ(to_string(Tensor::zeros({DType::f32, {2, 0}})), "f32[2, 0]\n[[],\n []]");
  EXPECT_EQ(to_string(arange(0, 2000)), "i32[2000] [0, 1, 2, …, 1997, 1998, 1999]");
  EXPECT_EQ(to_string(Tensor()), "an undefined Tensor");
  Graph graph;
  Trace trace(graph);
  EXPECT_EQ(to_string(trace.input("x", {DType::f32, {3}})), "f32[3] in a trace");
}

}  // namespace
}  // namespace tandem::testing
