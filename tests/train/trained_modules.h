#pragma once
#include <vector>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

namespace tandem::testing {

struct Net : nn::Module {
  using Module::Module;
  Net() = default;
  nn::Linear hidden{*this, "hidden", {.in = 3, .out = 4}};
  nn::BatchNorm norm{*this, "norm", {.channels = 4}};
  nn::Linear head{*this, "head", {.in = 4, .out = 2}};
  Tensor forward(const Tensor& x) override { return head(tanh(norm(hidden(x)))); }
};

// Two nets of a game: each is trained against the other.
struct Pair : nn::ModuleBase {
  Net first{*this, "first"}, second{*this, "second"};
};

class TrainedModules : public ::testing::Test {
 protected:
  TrainedModules() {
    std::vector<double> values;
    for (int i = 0; i < 24; ++i) values.push_back((i * 31 + 7) % 23 / 23.0 - 0.4);
    x = Tensor::from(values, {8, 3}, DType::f64);
    y = Tensor::from({0, 1, 1, 0, 1, 0, 0, 1}, {8}, DType::i32);
    net.initialize(1);
  }
  TrainStep::Loss loss(Net& of) {
    return [&of](const Tensors& b) { return cross_entropy(of(b[0]), b[1]); };
  }
  static void expect_equal(const StateDict& a, const StateDict& b) {
    for (const auto& [path, value] : a)
      if (!path.starts_with("optimizer.")) {
        EXPECT_EQ(value.values(), b.at(path).values()) << path;
      }
  }

  const nn::DtypeScope f64_{DType::f64};
  Tensor x, y;
  Net net;
};

}  // namespace tandem::testing
