#include <tandem/nn/models/mobilenet_v3.h>

#include <algorithm>
#include <array>

#include <tandem/nn/file_layout.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

namespace tandem::nn {
namespace {

using Activation = Tensor (*)(const Tensor&);

// A row of Table 1: an inverted residual.
struct Row {
  std::int64_t kernel, expanded, out;
  bool squeezes;
  Activation activation;
  std::int64_t stride;
};
const Activation kRelu = [](const Tensor& x) { return relu(x); };
constexpr std::int64_t kStem = 16;
const std::array kRows{Row{3, 16, 16, false, kRelu, 1},       Row{3, 64, 24, false, kRelu, 2},
                       Row{3, 72, 24, false, kRelu, 1},       Row{5, 72, 40, true, kRelu, 2},
                       Row{5, 120, 40, true, kRelu, 1},       Row{5, 120, 40, true, kRelu, 1},
                       Row{3, 240, 80, false, hard_swish, 2}, Row{3, 200, 80, false, hard_swish, 1},
                       Row{3, 184, 80, false, hard_swish, 1}, Row{3, 184, 80, false, hard_swish, 1},
                       Row{3, 480, 112, true, hard_swish, 1}, Row{3, 672, 112, true, hard_swish, 1},
                       Row{5, 672, 160, true, hard_swish, 2}, Row{5, 960, 160, true, hard_swish, 1},
                       Row{5, 960, 160, true, hard_swish, 1}};

// The nearest multiple of 8 that is not more than a tenth smaller.
std::int64_t multiple_of_8(double channels) {
  const std::int64_t nearest = std::max<std::int64_t>(8, static_cast<std::int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

// A convolution, a norm, and an activation.
void add_unit(Sequential& to, Conv2dOptions convolution, Activation activation) {
  convolution.padding = convolution.kernel.h / 2;
  convolution.bias = false;
  convolution.init = kaiming_normal_by_outputs();
  auto& unit = to.add<Sequential>();
  unit.add<Conv2d>(convolution);
  unit.add<BatchNorm>({.channels = convolution.out, .eps = 1e-3, .momentum = 0.01});
  if (activation) unit.add(activation);
}

// Weighs the channels of each image by its mean pixel.
class SqueezeExcitation final : public Module {
 public:
  SqueezeExcitation(ModuleBase& parent, const std::string& name, std::int64_t channels)
      : SqueezeExcitation(parent, name, channels, multiple_of_8(static_cast<double>(channels) / 4)) {}
  Tensor forward(const Tensor& x) override {
    return x * hard_sigmoid(fc2_(relu(fc1_(mean(x, {1, 2}, /*keep=*/true)))));
  }

 private:
  SqueezeExcitation(ModuleBase& parent, const std::string& name, std::int64_t channels, std::int64_t squeezed)
      : Module(parent, name),
        fc1_(*this, "fc1",
             {.in = channels, .out = squeezed, .kernel = 1, .init = kaiming_normal_by_outputs()}),
        fc2_(*this, "fc2",
             {.in = squeezed, .out = channels, .kernel = 1, .init = kaiming_normal_by_outputs()}) {}
  Conv2d fc1_, fc2_;
};

class InvertedResidual final : public Module {
 public:
  InvertedResidual(ModuleBase& parent, const std::string& name, std::int64_t in, const Row& row)
      : Module(parent, name), block_(*this, "block"), keeps_shape_(row.stride == 1 && in == row.out) {
    if (row.expanded != in) add_unit(block_, {.in = in, .out = row.expanded, .kernel = 1}, row.activation);
    add_unit(block_,
             {.in = row.expanded,
              .out = row.expanded,
              .kernel = row.kernel,
              .stride = row.stride,
              .groups = row.expanded},
             row.activation);
    if (row.squeezes) block_.add<SqueezeExcitation>(row.expanded);
    add_unit(block_, {.in = row.expanded, .out = row.out, .kernel = 1}, nullptr);
  }
  Tensor forward(const Tensor& x) override { return keeps_shape_ ? block_(x) + x : block_(x); }

 private:
  Sequential block_;
  const bool keeps_shape_;
};

}  // namespace

MobileNetV3::MobileNetV3(MobileNetV3Options o)
    : features_(*this, "features"), classifier_(*this, "classifier") {
  const auto scaled = [&](std::int64_t channels) {
    return multiple_of_8(static_cast<double>(channels) * o.width);
  };
  std::int64_t in = scaled(kStem);
  add_unit(features_, {.in = o.channels, .out = in, .kernel = 3, .stride = 2}, hard_swish);
  for (Row row : kRows) {
    row.expanded = scaled(row.expanded), row.out = scaled(row.out);
    features_.add<InvertedResidual>(in, row);
    in = row.out;
  }
  const std::int64_t last = 6 * in;
  add_unit(features_, {.in = in, .out = last, .kernel = 1}, hard_swish);
  classifier_.add<Linear>({.in = last, .out = o.hidden, .init = normal(0.01)});
  classifier_.add(hard_swish);
  classifier_.add<Dropout>(o.dropout);
  classifier_.add<Linear>({.in = o.hidden, .out = o.classes, .init = normal(0.01)});
}

Tensor MobileNetV3::forward(const Tensor& x) { return classifier_(mean(features_(x), {1, 2})); }

std::vector<FileLayout> MobileNetV3::file_layouts() const { return {{.library = "torchvision"}}; }

}  // namespace tandem::nn
