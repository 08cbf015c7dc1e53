// What delay and prediction do to training, in cases where pencil and paper say it.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/graph/trace.h>
#include <tandem/core/runtime/session.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/ops/pointwise.h>
#include <tandem/plan/build.h>

namespace tandem::testing {
using namespace engine;
namespace {

const TensorType kNumber{DType::f64, {}};

class RateHost final : public Host {
 public:
  explicit RateHost(double lr) : lr_(lr) {}
  void fill(const HostInput& in) override { in.fill(in.name == kLearningRateInput ? lr_ : 1); }
  void deliver(const HostResult& result) override { losses.push_back(result.values().at(0)); }
  std::vector<double> losses;  // delivered on one lane

 private:
  const double lr_;
};

// Trains numbers w0, w1, … from `start`; `loss` of them is traced with stage k in the module "mk".
template <class Loss>
std::vector<double> losses_of(const Loss& loss, int weights, double start, Strategy strategy, double lr,
                              std::int64_t batches) {
  Graph forward;
  {
    Trace trace(forward);
    Tensors w;
    for (int k = 0; k < weights; ++k) {
      trace.set_tag(tag_of(Phase::forward, fmt::format("m{}", k)));
      w.push_back(trace.read(forward.add_state({fmt::format("m{}.w", k), kNumber, /*trained=*/true})));
    }
    trace.set_tag(tag_of(Phase::forward, "m0"));
    trace.result(kLossResult, loss(trace, w));
  }
  for (int k = 1; k < strategy.stages; ++k) strategy.cuts.push_back(fmt::format("m{}", k));
  RateHost host(lr);
  Session session(build(forward, strategy), thread_comms(strategy.ranks()), host);
  StateDict state;
  for (int k = 0; k < weights; ++k) state[fmt::format("m{}.w", k)] = Tensor::from({start}, {}, DType::f64);
  session.load(state);
  session.run(0, batches);
  return host.losses;
}

// ½(x·w0·w1·w2·w3 − 1)² with x = 1, one factor on each stage.
Tensor chain(Trace& trace, const Tensors& w) {
  Tensor y = trace.input("x", kNumber) * w[0];
  for (int k = 1; k < 4; ++k) {
    trace.set_tag(tag_of(Phase::forward, fmt::format("m{}", k)));
    y = y * w[static_cast<std::size_t>(k)];
  }
  const Tensor off = y - 1.0;
  return off * off * 0.5;
}

// Dual issue in which B uses the weights of its F. All stages lie on one device, whose few instructions take
// less time than threads need to wait for each other.
PipelineSchedule stashed(int stages) {
  PipelineSchedule s = make_schedule("dualpipe", {.stages = stages});
  for (PipelineStage& stage : s.stages) {
    stage.weights.backward_age.reset();
    stage.device = 0;
  }
  return s;
}

double mean_of_last_20(const std::vector<double>& losses) {
  double sum = 0;
  for (std::size_t i = losses.size() - 20; i < losses.size(); ++i) sum += losses[i];
  return sum / 20;
}

// Four stages, 400 batches from w = 0.9 at momentum 0.9. The figures come from a simulation of the updates
// without this engine; `momentum` at a tenth of the rate equals `ema`.
TEST(SpecTrain, AChainOfFourFactorsLearnsAsOnPaper) {
  const auto trained = [](const std::string& schedule, SgdRule rule, SpecTrainTarget target = {}) {
    Strategy s{.stages = schedule == "plain" ? 1 : 4, .schedule = schedule};
    if (schedule == "stash") s = with_schedule({}, stashed(4));
    s.spectrain_target = target;
    s.optimizer = SgdOptions{.momentum = 0.9, .rule = rule};
    return mean_of_last_20(losses_of(chain, 4, 0.9, s, rule == SgdRule::momentum ? 0.01 : 0.1, 400));
  };
  const auto near = [](double expected, double is) { EXPECT_NEAR(is, expected, 0.04 * expected); };
  for (const SgdRule rule : {SgdRule::momentum, SgdRule::ema}) {
    SCOPED_TRACE(static_cast<int>(rule));
    near(7.6e-20, trained("plain", rule));
    near(1.9e-2, trained("dualpipe", rule));
    near(3.2e-2, trained("stash", rule));
    near(1.4e-20, trained("spectrain", rule));
    near(6.4e-11, trained("spectrain", rule, SpecTrainTarget::serial));
    near(3.0e-9, trained("pipedream", rule));
    near(0.44, trained("dualpipe-vs", rule));
  }
  near(9.9e-32, trained("plain", SgdRule::raw_ema));
  near(1.4e-25, trained("dualpipe", SgdRule::raw_ema));
  near(7.7e-13, trained("spectrain", SgdRule::raw_ema));
  near(5.7e-11, trained("spectrain", SgdRule::raw_ema, SpecTrainTarget::serial));
}

// ½w², with w on the first of N stages: an update uses a gradient of weights that are τ = 2(N − 1) updates
// old. Without momentum the largest stable rate is 2·sin(π/(2(2τ + 1))).
TEST(SpecTrain, TheLargestStableRateIsThatOfTheTheory) {
  const auto loss = [](int stages) {
    return [stages](Trace& trace, const Tensors& w) {
      Tensor y = w[0] * 1.0;
      for (int k = 1; k < stages; ++k) {
        trace.set_tag(tag_of(Phase::forward, fmt::format("m{}", k)));
        y = y * 1.0;
      }
      return y * y * 0.5;
    };
  };
  struct Row {
    SgdOptions sgd;
    bool predicts;
    std::array<double, 3> largest;  // of N = 2, 3, 4
  };
  const std::vector<Row> rows = {{{}, false, {0.618, 0.347, 0.241}},
                                 {{.momentum = 0.9}, false, {0.0512, 0.0265, 0.0182}},
                                 {{.momentum = 0.9}, true, {0.1210, 0.0494, 0.0286}},
                                 {{.momentum = 0.9, .rule = SgdRule::ema}, false, {0.512, 0.265, 0.182}},
                                 {{.momentum = 0.9, .rule = SgdRule::ema}, true, {1.210, 0.494, 0.286}},
                                 {{.momentum = 0.9, .rule = SgdRule::raw_ema}, false, {0.618, 0.347, 0.241}},
                                 {{.momentum = 0.9, .rule = SgdRule::raw_ema}, true, {0.521, 0.262, 0.168}}};
  for (const Row& row : rows)
    for (int stages = 2; stages <= 4; ++stages) {
      Strategy s = with_schedule({}, stashed(stages));
      if (row.predicts) s.own_schedule->stages[0].weights.forward_predicts = 2 * (stages - 1);
      s.optimizer = row.sgd;
      s.verify = false;
      const double largest = row.largest[static_cast<std::size_t>(stages - 2)];
      SCOPED_TRACE(::testing::Message() << "rule " << static_cast<int>(row.sgd.rule) << " predicts "
                                        << row.predicts << " stages " << stages);
      const auto largest_loss = [&](double rate) {
        const auto losses = losses_of(loss(stages), 1, 1, s, rate, 1000);
        return *std::max_element(losses.end() - 100, losses.end());
      };
      EXPECT_LT(largest_loss(0.97 * largest), 0.1);
      EXPECT_GT(largest_loss(1.03 * largest), 2);
    }
}

}  // namespace
}  // namespace tandem::testing
