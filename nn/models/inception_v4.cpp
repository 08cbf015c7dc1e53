#include <tandem/nn/models/inception_v4.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tandem/nn/file_layout.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

// A convolution as Figs. 3 to 8 have it, such as 3×3 (64). It has no padding where they mark it with V.
struct Conv {
  Size2 kernel;
  std::int64_t out;
  std::int64_t stride = 1;
  bool valid = false;
};

// How the layers of a network differ from those of the figures.
struct Variant {
  std::int64_t width;
  bool keeps_size;

  std::int64_t scaled(std::int64_t channels) const { return channels * width / 32; }
  Conv2dOptions convolution(std::int64_t in, const Conv& c) const {
    return {.in = in,
            .out = scaled(c.out),
            .kernel = c.kernel,
            .stride = c.stride,
            .padding = keeps_size || !c.valid ? Size2{c.kernel.h / 2, c.kernel.w / 2} : Size2{0},
            .bias = false};
  }
};

// A convolution, a norm, and relu.
class BasicConv final : public Module {
 public:
  using Options = Conv2dOptions;
  BasicConv(ModuleBase& parent, const std::string& name, const Conv2dOptions& o)
      : Module(parent, name), conv_(*this, "conv", o), bn_(*this, "bn", {.channels = o.out, .eps = 1e-3}) {}
  Tensor forward(const Tensor& x) override { return relu(bn_(conv_(x))); }

 private:
  Conv2d conv_;
  BatchNorm bn_;
};

// What several branches make of an image, side by side.
class Block : public Module {
 public:
  Block(ModuleBase& parent, const std::string& name, const Variant& variant, std::int64_t in)
      : Module(parent, name), variant_(variant), in_(in) {}

  // Convolutions one after another, of the means of the 3×3 pixels around each if `pools`. One convolution
  // alone has the name of the branch.
  void add(const std::string& name, const std::vector<Conv>& convolutions, bool pools = false) {
    if (convolutions.size() == 1 && !pools) {
      auto& conv = own<BasicConv>(name, variant_.convolution(in_, convolutions[0]));
      branches_.push_back([&conv](const Tensor& x) { return conv(x); });
      out_ += variant_.scaled(convolutions[0].out);
      return;
    }
    auto& list = own<Sequential>(name);
    if (pools)
      list.add([](const Tensor& x) { return avg_pool2d(x, {3, 1, 1, /*count_include_pad=*/false}); });
    std::int64_t in = in_;
    for (const Conv& c : convolutions) {
      list.add<BasicConv>(variant_.convolution(in, c));
      in = variant_.scaled(c.out);
    }
    branches_.push_back([&list](const Tensor& x) { return list(x); });
    out_ += in;
  }
  // The maxima of 3×3 pixels, with stride 2.
  void add_max_pool() {
    branches_.push_back([padding = variant_.keeps_size ? 1 : 0](const Tensor& x) {
      return max_pool2d(x, {3, 2, padding});
    });
    out_ += in_;
  }
  // Convolutions one after another, `to`, and then two side by side.
  void add_fork(const std::string& name, const std::vector<std::pair<std::string, Conv>>& to, const Conv& a,
                const Conv& b) {
    std::vector<BasicConv*> list;
    std::int64_t in = in_;
    for (const auto& [suffix, c] : to) {
      list.push_back(&own<BasicConv>(name + suffix, variant_.convolution(in, c)));
      in = variant_.scaled(c.out);
    }
    const std::string last = fmt::format("{}_{}", name, to.size());
    auto &left = own<BasicConv>(last + "a", variant_.convolution(in, a)),
         &right = own<BasicConv>(last + "b", variant_.convolution(in, b));
    branches_.push_back([list, &left, &right](const Tensor& x) {
      Tensor h = x;
      for (BasicConv* conv : list) h = (*conv)(h);
      return concat({left(h), right(h)}, -1);
    });
    out_ += variant_.scaled(a.out) + variant_.scaled(b.out);
  }
  std::int64_t out() const { return out_; }

  Tensor forward(const Tensor& x) override {
    Tensors parts;
    for (const auto& branch : branches_) parts.push_back(branch(x));
    return concat(parts, -1);
  }

 private:
  template <class M, class... Args> M& own(const std::string& name, const Args&... args) {
    auto module = std::make_unique<M>(*this, name, args...);
    M& made = *module;
    modules_.push_back(std::move(module));
    return made;
  }

  const Variant variant_;
  const std::int64_t in_;
  std::int64_t out_ = 0;  // channels
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<std::function<Tensor(const Tensor&)>> branches_;
};

// Adds the layers of `features` one after another.
class Features {
 public:
  Features(Sequential& layers, const InceptionV4Options& o)
      : layers_(layers), variant_{o.width, o.keeps_size}, channels_(o.channels) {}
  std::int64_t channels() const { return channels_; }

  void convolve(const Conv& c) {
    layers_.add<BasicConv>(variant_.convolution(channels_, c));
    channels_ = variant_.scaled(c.out);
  }
  void stem() {  // Fig. 3
    convolve({3, 32, 2, true});
    convolve({3, 32, 1, true});
    convolve({3, 64});
    add([](Block& b) {
      b.add_max_pool();
      b.add("conv", {{3, 96, 2, true}});
    });
    add([](Block& b) {
      b.add("branch0", {{1, 64}, {3, 96, 1, true}});
      b.add("branch1", {{1, 64}, {{1, 7}, 64}, {{7, 1}, 64}, {3, 96, 1, true}});
    });
    add([](Block& b) {
      b.add("conv", {{3, 192, 2, true}});
      b.add_max_pool();
    });
  }
  void block_a() {  // Fig. 4
    add([](Block& b) {
      b.add("branch0", {{1, 96}});
      b.add("branch1", {{1, 64}, {3, 96}});
      b.add("branch2", {{1, 64}, {3, 96}, {3, 96}});
      b.add("branch3", {{1, 96}}, /*pools=*/true);
    });
  }
  void reduction_a() {  // Fig. 7
    add([](Block& b) {
      b.add("branch0", {{3, 384, 2, true}});
      b.add("branch1", {{1, 192}, {3, 224}, {3, 256, 2, true}});
      b.add_max_pool();
    });
  }
  void block_b() {  // Fig. 5
    add([](Block& b) {
      b.add("branch0", {{1, 384}});
      b.add("branch1", {{1, 192}, {{1, 7}, 224}, {{7, 1}, 256}});
      b.add("branch2", {{1, 192}, {{7, 1}, 192}, {{1, 7}, 224}, {{7, 1}, 224}, {{1, 7}, 256}});
      b.add("branch3", {{1, 128}}, /*pools=*/true);
    });
  }
  void reduction_b() {  // Fig. 8
    add([](Block& b) {
      b.add("branch0", {{1, 192}, {3, 192, 2, true}});
      b.add("branch1", {{1, 256}, {{1, 7}, 256}, {{7, 1}, 320}, {3, 320, 2, true}});
      b.add_max_pool();
    });
  }
  void block_c() {  // Fig. 6
    add([](Block& b) {
      b.add("branch0", {{1, 256}});
      b.add_fork("branch1", {{"_0", {1, 384}}}, {{1, 3}, 256}, {{3, 1}, 256});
      b.add_fork("branch2", {{"_0", {1, 384}}, {"_1", {{3, 1}, 448}}, {"_2", {{1, 3}, 512}}}, {{1, 3}, 256},
                 {{3, 1}, 256});
      b.add("branch3", {{1, 256}}, /*pools=*/true);
    });
  }

 private:
  void add(void (*branches)(Block&)) {
    auto& block = layers_.add<Block>(variant_, channels_);
    branches(block);
    channels_ = block.out();
  }

  Sequential& layers_;
  const Variant variant_;
  std::int64_t channels_;
};

std::int64_t add_features(Sequential& layers, const InceptionV4Options& o) {
  Features features(layers, o);
  features.stem();
  for (int b = 0; b < o.blocks_a; ++b) features.block_a();
  features.reduction_a();
  for (int b = 0; b < o.blocks_b; ++b) features.block_b();
  features.reduction_b();
  for (int b = 0; b < o.blocks_c; ++b) features.block_c();
  return features.channels();
}

}  // namespace

InceptionV4::InceptionV4(InceptionV4Options o)
    : features_(*this, "features"),
      last_linear_(*this, "last_linear", {.in = add_features(features_, o), .out = o.classes}) {}

Tensor InceptionV4::forward(const Tensor& x) { return last_linear_(mean(features_(x), {1, 2})); }

std::vector<FileLayout> InceptionV4::file_layouts() const { return {{.library = "timm"}}; }

}  // namespace tandem::nn
