// Random small networks under random strategies: each builds, passes the verifier, simulates, runs, and gives
// the results of an eager loop.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

#include "lagged_loop.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

constexpr int kCases = 1000;
constexpr std::int64_t kWidth = 6;

// Modules in sequence; each may also use the output of any earlier module.
class RandomNet final : public nn::Module {
 public:
  explicit RandomNet(std::uint64_t seed) : stem_(*this, "stem", {.in = 4, .out = kWidth}), random_(seed) {
    for (int i = 0; i < layers(seed); ++i)
      layers_.push_back(std::make_unique<Layer>(*this, "layer" + std::to_string(i), random_));
    head_ = std::make_unique<nn::Linear>(*this, "head", nn::LinearOptions{kWidth, 3});
  }

  static int layers(std::uint64_t seed) { return 2 + static_cast<int>(seed % 5); }

  Tensor forward(const Tensor& x) override {
    std::vector<Tensor> made{stem_(flatten(x))};
    for (auto& layer : layers_) {
      layer->skip = made[layer->skip_choice % made.size()];
      made.push_back((*layer)(made.back()));
    }
    return (*head_)(made.back());
  }

 private:
  struct Layer final : nn::Module {
    Layer(nn::Module& parent, const std::string& name, std::mt19937_64& random)
        : Module(parent, name),
          kind(random() % 8),
          skip_choice(random()),
          linear(*this, "linear", {kWidth, kWidth, random() % 2 == 0}),
          drop(*this, "drop", 0.3) {}
    Tensor forward(const Tensor& x) override {
      switch (kind) {
        case 0: return relu(linear(x));
        case 1: return add(tanh(linear(x)), skip);
        case 2: return relu(add(linear(x), mul(tanh(skip), x)));
        case 3: return flatten(gelu(reshape(linear(x), {x.size(0), 2, kWidth / 2})));
        case 4: return drop(maximum(linear(x), skip));
        case 5:
          return relu(
              add(tandem::linear(x, of_weights(transpose(mul(weight(), weight()), {1, 0}))), linear(x)));
        case 6: return tanh(add(linear(skip), tandem::linear(x, of_weights(scale(tanh(weight()), 0.5)))));
        default: return add(x, sub(linear(skip), mean(x, {1}, true)));
      }
    }
    const Tensor& weight() { return linear.named_parameters()[0].second->tensor; }
    std::uint64_t kind, skip_choice;
    nn::Linear linear;
    nn::Dropout drop;
    Tensor skip;
  };
  nn::Linear stem_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<nn::Linear> head_;
};

struct Case {
  Job job;
  Strategy strategy;
  std::string text;
};

std::vector<std::string> draw_cuts(std::uint64_t seed, int count, std::mt19937_64& random) {
  std::vector<std::string> modules = {"head"}, cuts;
  for (int i = RandomNet::layers(seed); i-- > 0;)
    modules.insert(modules.begin(), "layer" + std::to_string(i));
  std::sample(modules.begin(), modules.end(), std::back_inserter(cuts), count, random);
  return cuts;
}

Case draw_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  Case c;
  c.job.model = [seed] { return std::make_unique<RandomNet>(seed); };
  c.job.sample = {2, 2};
  c.job.classes = 3;
  c.job.dtype = DType::f64;
  c.job.batch_size = 8;
  c.job.data_seed = seed;
  c.job.drains = {1 + pick(7), 1 + pick(4)};
  if (pick(4) == 0) c.job.seeds = {seed, seed + 1}, c.job.rates = {0.05, 0.02};
  Strategy& s = c.strategy;
  if (pick(3))
    s.optimizer = SgdOptions{.momentum = pick(2) ? 0.9 : 0.0, .weight_decay = pick(2) ? 1e-3 : 0};
  else
    s.optimizer = AdamOptions{.weight_decay = pick(2) ? 1e-3 : 0, .decoupled = pick(2) == 1};
  s.fuse_pointwise = pick(4) != 0;
  s.fuse_epilogues = pick(4) != 0;
  const auto names = schedule_names();
  s.schedule = names[static_cast<std::size_t>(pick(static_cast<int>(names.size())))];
  s.stages = 1 + pick(4);
  s.microbatches = 1 << pick(3);
  if (s.schedule == "pipedream-2bw") s.microbatches = 4;
  if (auto* sgd = std::get_if<SgdOptions>(&s.optimizer); sgd && s.schedule == "spectrain")
    sgd->momentum = 0.8;
  if (s.schedule == "interleaved") s.stages = 4, s.chunks = 2 + 2 * pick(2), s.microbatches = 4;
  s.cuts = draw_cuts(seed, s.stages - 1, random);
  if (pick(4) == 0) s.replicas = 2;
  if (pick(2)) s.swap = {"layer" + std::to_string(pick(2))};
  if (pick(2)) s.recompute = {pick(3) ? "layer1" : "*"};
  s.lockstep = pick(4) == 0;
  c.text = std::string(s.lockstep ? "lockstep " : "") + s.schedule + " stages " + std::to_string(s.stages) +
           " microbatches " + std::to_string(s.microbatches) + " replicas " + std::to_string(s.replicas) +
           " models " + std::to_string(c.job.seeds.size()) + " swap " + std::to_string(s.swap.size()) +
           " recompute " + (s.recompute.empty() ? "-" : s.recompute[0]);
  return c;
}

bool diverged(const Outcome& out) {
  return !std::ranges::all_of(out.losses, [](const auto& models) {
    return std::ranges::all_of(models, [](double loss) { return std::isfinite(loss); });
  });
}

TEST(RandomTraining, EveryStrategyGivesWhatTheEagerLoopGives) {
  int skipped = 0;  // impossible, or without a result to compare
  for (int i = 0; i < kCases; ++i) {
    const std::uint64_t seed = run_seed() + static_cast<std::uint64_t>(i);
    Case c = draw_case(seed);
    SCOPED_TRACE("case " + std::to_string(seed) + ": " + c.text);
    Outcome out;
    try {
      out = train(c.job, c.strategy);
    } catch (const Error& e) {
      const std::string what = e.what();  // some draws request the impossible
      const bool both = !c.strategy.swap.empty() && !c.strategy.recompute.empty();
      ASSERT_TRUE(what.find("names no activation") != std::string::npos ||
                  (both && what.find("is recomputed already") != std::string::npos))
          << what;
      ++skipped;
      continue;
    }
    const Outcome loop = lagged_loop(c.job, c.strategy);
    if (diverged(loop)) {  // not a number is not equal to itself
      ++skipped;
      continue;
    }
    if (c.strategy.replicas == 1) {
      expect_same_results(loop, out);
    } else {
      EXPECT_LE(largest_difference(loop, out), 1e-10);
    }
    SimBackend sim(out.program);
    EXPECT_NO_THROW(run(sim, c.job.drains[0]));
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_LT(skipped, kCases / 3);
}

}  // namespace
}  // namespace tandem::testing
