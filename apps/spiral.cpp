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

int main() {
  Net net;
  net.initialise(/*seed=*/1);
  Graph graph;
  {
    Trace trace(graph);  // inside, ops become nodes instead of running
    const Tensor x = trace.input("x", {DType::f32, {256, 2}}), y = trace.input("y", {DType::i32, {256}});
    trace.result("loss", cross_entropy(net(x), y));
  }
  const Program program =
      build(graph, {.optimizer = SgdOptions{.momentum = 0.9}});  // differentiated, placed, verified
  FunctionHost host(
      [](const std::string& name, std::int64_t, std::span<std::byte> out) {
        float* const f = reinterpret_cast<float*>(out.data());
        for (int i = 0; i < 256; ++i) {
          const float turn = 0.04f * static_cast<float>(i / 2), radius = turn / 5, side = i % 2 ? 1.f : -1.f;
          if (name == "x")
            f[2 * i] = side * radius * std::cos(turn), f[2 * i + 1] = side * radius * std::sin(turn);
          if (name == "y") reinterpret_cast<std::int32_t*>(out.data())[i] = i % 2;
        }
        if (name == "lr") f[0] = 0.1f;
      },
      [](const std::string&, std::int64_t batch, std::span<const std::byte> value) {
        if (batch % 500 == 499)
          std::printf("batch %4lld  loss %.4f\n", static_cast<long long>(batch) + 1,
                      *reinterpret_cast<const float*>(value.data()));
      });
  Session session(program, {}, host);
  session.load(net.state());
  session.run(/*first_batch=*/0, /*batches=*/2000);
}
