// The README's example: a small network learns to tell two spirals apart.
#include <cmath>
#include <cstdio>

#include <tandem/tandem.h>
using namespace tandem;

struct Net : nn::Module {
  nn::Linear first{*this, "first", {.in = 2, .out = 64}}, second{*this, "second", {.in = 64, .out = 64}};
  nn::Linear head{*this, "head", {.in = 64, .out = 2}};
  Tensor forward(const Tensor& x) override { return head(relu(second(relu(first(x))))); }
};

// Two arms of 128 points each, and which arm each point is on.
Tensors spirals() {
  Tensor x = Tensor::empty({DType::f32, {256, 2}}), y = Tensor::empty({DType::i32, {256}});
  for (int i = 0; i < 256; ++i) {
    const float turn = 0.04f * static_cast<float>(i / 2), radius = turn / 5, side = i % 2 ? 1.f : -1.f;
    x.as<float>()[2 * i] = side * radius * std::cos(turn);
    x.as<float>()[2 * i + 1] = side * radius * std::sin(turn);
    y.as<std::int32_t>()[i] = i % 2;
  }
  return {x, y};
}

int main() {
  Net net;
  net.initialize(/*seed=*/1);
  TrainStep step(net, SgdOptions{.momentum = 0.9},
                 [&](const Tensor& points, const Tensor& arms) { return cross_entropy(net(points), arms); });
  const Tensors data = spirals();  // 256 points and the arm that each is on
  for (int batch = 1; batch <= 2000; ++batch) {
    const double loss = step(data, /*lr=*/0.1);  // the first call traces, plans and proves; all others replay
    if (batch % 500 == 0) std::printf("batch %4d  loss %.4f\n", batch, loss);
  }
  const NoGrad no_grad;  // outside a TrainStep, ops run at once
  std::printf("%d of 256 right\n", correct_count(net(data[0]), data[1]).item<int>());
}
