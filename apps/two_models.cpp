// The example of docs/api.md: two models side by side, in a pipeline of two stages on threads, evaluated on
// the same ranks, and taken back into a Module.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include <tandem/core/graph/state_dict.h>
#include <tandem/engine.h>
using namespace tandem;
using namespace tandem::engine;

constexpr int kSamples = 256, kModels = 2, kMicrobatches = 2;

struct Net : nn::Module {
  nn::Linear first{*this, "first", {.in = 2, .out = 64}}, second{*this, "second", {.in = 64, .out = 64}};
  nn::Linear head{*this, "head", {.in = 64, .out = 2}};
  Tensor forward(const Tensor& x) override { return head(relu(second(relu(first(x))))); }
};

// Two spirals: every batch is the same, cut into the micro-batches that the Program asks for.
class Spirals final : public Host {
 public:
  explicit Spirals(int microbatches) : samples_(kSamples / microbatches) {}

  void fill(const std::string& name, std::int64_t, int microbatch, const RankContext&,
            std::span<std::byte> out) override {
    constexpr std::array<float, kModels> kRates{0.1f, 0.05f};
    if (name == "lr") std::memcpy(out.data(), kRates.data(), out.size());  // one per model
    float* const f = reinterpret_cast<float*>(out.data());
    for (int i = 0; i < samples_; ++i) {
      const int sample = microbatch * samples_ + i;
      const float turn = 0.04f * static_cast<float>(sample / 2), side = sample % 2 ? 0.2f : -0.2f;
      if (name == "x") f[2 * i] = side * turn * std::cos(turn), f[2 * i + 1] = side * turn * std::sin(turn);
      if (name == "y") reinterpret_cast<std::int32_t*>(out.data())[i] = sample % 2;
    }
  }
  void deliver(const std::string& name, std::int64_t, const RankContext&,
               std::span<const std::byte> value) override {
    const std::lock_guard lock(mutex_);  // called from lanes' threads
    if (name == "correct") std::memcpy(correct.data(), value.data(), value.size());
  }

  std::array<std::int32_t, kModels> correct{};

 private:
  int samples_;
  std::mutex mutex_;
};

Graph forward_graph(Net& net, std::int64_t samples, bool training) {
  net.train(training);
  Graph graph;
  Trace trace(graph);
  const Tensor x = trace.input("x", {DType::f32, {samples, 2}});
  const Tensor y = trace.input("y", {DType::i32, {samples}});
  const Tensor logits = net(x);
  trace.result(training ? "loss" : "correct", training ? cross_entropy(logits, y) : correct_count(logits, y));
  return graph;
}

int main() try {
  std::array<Net, kModels> nets;
  for (std::size_t m = 0; m < nets.size(); ++m) nets[m].initialize(/*seed=*/m + 1);

  const Strategy strategy{.models = kModels,
                          .microbatches = kMicrobatches,
                          .stages = 2,
                          .schedule = ScheduleKind::one_f_one_b,
                          .cuts = {"second"},  // the second stage begins with this module
                          .optimizer = SgdOptions{.momentum = 0.9}};
  const Program training = build(forward_graph(nets[0], kSamples / kMicrobatches, true), strategy);
  const Program evaluation = build(forward_graph(nets[0], kSamples, false), for_evaluation(strategy));

  Spirals train_host(kMicrobatches), test_host(1);
  Session session(training, thread_comms(training.ranks()), train_host);
  const int evaluate = session.add(evaluation, test_host);
  const std::array states{nets[0].state(), nets[1].state()};
  session.load(stack_states(states));  // (models, …) for every tensor

  session.run(/*first_batch=*/0, /*batches=*/2000);
  session.run(0, 1, evaluate);
  for (int m = 0; m < kModels; ++m)
    std::printf("model %d: %d of %d right\n", m, test_host.correct[static_cast<std::size_t>(m)], kSamples);

  const auto trained = unstack_states(session.state(), kModels);
  for (std::size_t m = 0; m < nets.size(); ++m) nets[m].load(trained[m]);  // to compute with, or to keep
} catch (const std::exception& e) {
  std::fprintf(stderr, "two_models: %s\n", e.what());
  return 1;
}
