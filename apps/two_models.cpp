// Two models side by side, in a pipeline of two stages on threads.
#include <array>
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
  std::array<Net, 2> nets;
  for (std::size_t m = 0; m < nets.size(); ++m) nets[m].initialize(/*seed=*/m + 1);
  TrainStep step({&nets[0], &nets[1]}, SgdOptions{.momentum = 0.9},
                 [&](const Tensors& batch) { return cross_entropy(nets[0](batch[0]), batch[1]); },
                 {.strategy = {.microbatches = 2,
                               .stages = 2,
                               .schedule = ScheduleKind::one_f_one_b,
                               .cuts = {"second"}}});  // the second stage begins with this module
  const Tensors data = spirals();
  step.run(std::vector<Tensors>(2000, data), /*rates=*/{0.1, 0.05});
  const NoGrad no_grad;
  for (int m = 0; m < 2; ++m)
    std::printf("model %d: %d of 256 right\n", m,
                correct_count(nets[static_cast<std::size_t>(m)](data[0]), data[1]).item<int>());
}
