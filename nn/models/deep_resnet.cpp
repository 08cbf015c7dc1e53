#include <tandem/nn/models/deep_resnet.h>

#include <array>

#include <fmt/format.h>

#include <tandem/nn/file_layout.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/reduce.h>

namespace tandem::nn {
namespace {

struct Depth {
  int depth;
  std::array<int, 4> blocks;
  bool bottlenecks;
};
constexpr std::array kDepths{Depth{18, {2, 2, 2, 2}, false}, Depth{34, {3, 4, 6, 3}, false},
                             Depth{50, {3, 4, 6, 3}, true}, Depth{101, {3, 4, 23, 3}, true},
                             Depth{152, {3, 8, 36, 3}, true}};
constexpr std::int64_t kExpansion = 4;  // of a bottleneck's channels

const Depth& depth_of(int depth) {
  for (const Depth& d : kDepths)
    if (d.depth == depth) return d;
  throw Error(fmt::format("a ResNet for ImageNet has depth {}; it must be 18, 34, 50, 101, or 152", depth));
}

Conv2dOptions convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1) {
  return {.in = in,
          .out = out,
          .kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .bias = false,
          .init = kaiming_normal_by_outputs()};
}

}  // namespace

DeepResNet::Block::Block(ModuleBase& parent, const std::string& name, std::int64_t in, std::int64_t out,
                         std::int64_t stride)
    : Module(parent, name), in_(in), out_(out), stride_(stride) {}

void DeepResNet::Block::add_shortcut() {
  if (in_ == out_ && stride_ == 1) return;
  downsample_ = std::make_unique<Sequential>(*this, "downsample");
  downsample_->add<Conv2d>(convolution(in_, out_, 1, stride_));
  downsample_->add<BatchNorm>({out_});
}

Tensor DeepResNet::Block::shortcut(const Tensor& x) { return downsample_ ? (*downsample_)(x) : x; }

class DeepResNet::TwoConvolutions final : public Block {
 public:
  TwoConvolutions(ModuleBase& parent, const std::string& name, std::int64_t in, std::int64_t width,
                  std::int64_t stride)
      : Block(parent, name, in, width, stride),
        conv1_(*this, "conv1", convolution(in, width, 3, stride)),
        bn1_(*this, "bn1", {width}),
        conv2_(*this, "conv2", convolution(width, width, 3)),
        bn2_(*this, "bn2", {width}) {
    add_shortcut();
  }
  Tensor forward(const Tensor& x) override { return relu(bn2_(conv2_(relu(bn1_(conv1_(x))))) + shortcut(x)); }

 private:
  Conv2d conv1_;
  BatchNorm bn1_;
  Conv2d conv2_;
  BatchNorm bn2_;
};

class DeepResNet::Bottleneck final : public Block {
 public:
  Bottleneck(ModuleBase& parent, const std::string& name, std::int64_t in, std::int64_t width,
             std::int64_t stride)
      : Block(parent, name, in, kExpansion * width, stride),
        conv1_(*this, "conv1", convolution(in, width, 1)),
        bn1_(*this, "bn1", {width}),
        conv2_(*this, "conv2", convolution(width, width, 3, stride)),
        bn2_(*this, "bn2", {width}),
        conv3_(*this, "conv3", convolution(width, out_, 1)),
        bn3_(*this, "bn3", {out_}) {
    add_shortcut();
  }
  Tensor forward(const Tensor& x) override {
    return relu(bn3_(conv3_(relu(bn2_(conv2_(relu(bn1_(conv1_(x)))))))) + shortcut(x));
  }

 private:
  Conv2d conv1_;
  BatchNorm bn1_;
  Conv2d conv2_;
  BatchNorm bn2_;
  Conv2d conv3_;
  BatchNorm bn3_;
};

DeepResNet::Stage::Stage(ModuleBase& parent, const std::string& name, int blocks, bool bottlenecks,
                         std::int64_t in, std::int64_t width, std::int64_t stride)
    : Module(parent, name) {
  const std::int64_t out = bottlenecks ? kExpansion * width : width;
  for (int b = 0; b < blocks; ++b) {
    const std::string number = std::to_string(b);
    const std::int64_t from = b == 0 ? in : out, step = b == 0 ? stride : 1;
    if (bottlenecks)
      blocks_.push_back(std::make_unique<Bottleneck>(*this, number, from, width, step));
    else
      blocks_.push_back(std::make_unique<TwoConvolutions>(*this, number, from, width, step));
  }
}

Tensor DeepResNet::Stage::forward(const Tensor& x) {
  Tensor h = x;
  for (auto& block : blocks_) h = (*block)(h);
  return h;
}

DeepResNet::DeepResNet(DeepResNetOptions o)
    : conv1_(*this, "conv1", convolution(o.channels, o.width, 7, 2)), bn1_(*this, "bn1", {o.width}) {
  const Depth& d = depth_of(o.depth);
  std::int64_t in = o.width, width = o.width;
  for (std::size_t s = 0; s < d.blocks.size(); ++s, width *= 2) {
    stages_.push_back(std::make_unique<Stage>(*this, fmt::format("layer{}", s + 1), d.blocks[s],
                                              d.bottlenecks, in, width, s == 0 ? 1 : 2));
    in = d.bottlenecks ? kExpansion * width : width;
  }
  fc_ = std::make_unique<Linear>(*this, "fc", LinearOptions{.in = in, .out = o.classes});
}

Tensor DeepResNet::forward(const Tensor& x) {
  Tensor h = max_pool2d(relu(bn1_(conv1_(x))), {3, 2, 1});
  for (auto& stage : stages_) h = (*stage)(h);
  return (*fc_)(mean(h, {1, 2}));
}

std::vector<FileLayout> DeepResNet::file_layouts() const { return {{.library = "torchvision"}}; }

}  // namespace tandem::nn
