// Two models side by side, in a pipeline of two stages on threads.
#include <array>
#include <cstdio>

#include <tandem/tandem.h>
using namespace tandem;

struct Net : nn::Module {
  nn::Linear hidden{*this, "hidden", {.in = 2, .out = 64}}, head{*this, "head", {.in = 64, .out = 2}};
  Tensor forward(const Tensor& x) override { return head(relu(hidden(x))); }
};

void train() {
  // Points, and whether their coordinates have the same sign.
  const Tensor x = init::normal({DType::f32, {256, 2}}, /*mean=*/0, /*deviation=*/1, "points", /*seed=*/1);
  const Tensor y = cast(greater(x(Slice{}, 0) * x(Slice{}, 1), Tensor::zeros({DType::f32, {}})), DType::i32);

  std::array<Net, 2> nets;
  for (std::size_t m = 0; m < nets.size(); ++m) nets[m].initialize(/*seed=*/m + 1);
  TrainStep step({&nets[0], &nets[1]}, SgdOptions{.momentum = 0.9},
                 [&](const Tensor& in, const Tensor& label) { return cross_entropy(nets[0](in), label); },
                 {.strategy = {.microbatches = 2,
                               .stages = 2,
                               .schedule = "1f1b",
                               .cuts = {"head"}}});  // the second stage begins with this module
  step.run(std::vector<Tensors>(2000, {x, y}), /*rates=*/{0.1, 0.05});
  const NoGrad no_grad;
  for (std::size_t m = 0; m < nets.size(); ++m)
    std::printf("model %zu: %d of 256 right\n", m, correct_count(nets[m](x), y).item<int>());
}

int main() try { train(); } catch (const Error& e) {
  std::fprintf(stderr, "two_models: %s\n", e.what());
  return 1;
}
