// Products and convolutions also work in a build without oneDNN: this program always links
// ops/cpu/onednn_absent.cpp instead of oneDNN.
#include <gtest/gtest.h>

#include <tandem/core/graph/kernel.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>

namespace tandem::testing {
using namespace engine;
namespace {

TEST(WithoutOneDnn, ThereAreNoPrimitives) {
  const onednn::Operand operand{DType::f32, {4, 4}, {4, 1}};
  EXPECT_EQ(nullptr, onednn::matmul(operand, operand, nullptr, operand, {}));
}

TEST(WithoutOneDnn, ProductsAndConvolutionsAreComputed) {
  EXPECT_EQ((std::vector<double>{19, 22, 43, 50}),
            matmul(Tensor::from({1, 2, 3, 4}, {2, 2}), Tensor::from({5, 6, 7, 8}, {2, 2})).values());
  const Tensor image = Tensor::from({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1});
  const Tensor ones = Tensor::full({DType::f32, {1, 2, 2, 1}}, 1);
  EXPECT_EQ((std::vector<double>{12, 16, 24, 28}), conv2d(image, ones).values());
}

}  // namespace
}  // namespace tandem::testing
