// Training as a function of a batch.
#include <gtest/gtest.h>

#include <tandem/core/eager.h>
#include <tandem/core/error.h>
#include <tandem/ops/loss.h>
#include <tandem/plan/train_step.h>

#include "training_run.h"

namespace tandem {
namespace {

using testing::Job;
using testing::small_residual_job;

class TrainSteps : public ::testing::Test {
 protected:
  TrainSteps() {
    nn::set_default_dtype(DType::f32);
    job = small_residual_job();
    net = job.model();
    net->initialise(job.seeds[0]);
  }
  Tensors batch(std::int64_t number, std::int64_t samples = 8) const {
    Shape shape = job.sample;
    shape.insert(shape.begin(), samples);
    Tensor images = Tensor::empty({DType::f32, shape}), labels = Tensor::empty({DType::i32, {samples}});
    for (std::int64_t i = 0; i < images.elements(); ++i)
      images.as<float>()[i] = static_cast<float>((i * 31 + number * 17) % 23) / 23 - 0.5f;
    for (std::int64_t i = 0; i < samples; ++i)
      labels.as<std::int32_t>()[i] = static_cast<std::int32_t>((i + number) % job.classes);
    return {images, labels};
  }
  TrainStep step(Strategy strategy = {}, TrainStepOptions options = {}) {
    strategy.optimizer = SgdOptions{.momentum = 0.9};
    options.strategy = strategy;
    return TrainStep([&](const Tensors& b) { return cross_entropy((*net)(b[0]), b[1]); }, net->state(),
                     options);
  }

  Job job;
  std::unique_ptr<nn::Module> net;
};

TEST_F(TrainSteps, EqualTheEagerLoop) {
  TrainStep trained = step();
  std::vector<double> losses;
  for (int b = 0; b < 4; ++b) losses.push_back(trained(batch(b), 0.1));
  std::map<std::string, Tensor> velocity;
  const Tensor lr = Tensor::full({DType::f32, {}}, 0.1);
  for (int b = 0; b < 4; ++b) {
    const Tensors data = batch(b);
    const Tensor loss = cross_entropy((*net)(data[0]), data[1]);
    loss.backward();
    EXPECT_EQ(losses[static_cast<std::size_t>(b)], loss.item()) << b;
    const NoGrad no_grad;
    for (auto& [path, p] : net->named_parameters()) {
      Tensor& v = velocity[path];
      if (!v) v = Tensor::zeros(p->tensor.type());
      const Tensors updated = sgd_update(p->tensor, v, p->tensor.grad(), lr, {.momentum = 0.9});
      assign(p->tensor, updated[0]);
      v = updated[1];
      p->tensor.set_grad({});
    }
  }
  for (const auto& [path, value] : trained.state())
    if (!path.starts_with(kOptimizerPath)) {
      EXPECT_EQ(value.values(), net->state().at(path).values()) << path;
    }
  EXPECT_EQ(trained.batches(), 4);
  EXPECT_EQ(trained.traces(), 1);
}

TEST_F(TrainSteps, AreTheSameOnRanksAndInStages) {
  TrainStep one = step();
  std::vector<Tensors> batches;
  for (int b = 0; b < 5; ++b) batches.push_back(batch(b));
  const auto losses = one.run(batches, {0.05});
  Strategy s;
  s.replicas = s.stages = s.microbatches = 2;
  s.schedule = ScheduleKind::one_f_one_b;
  TrainStep many = step(s);
  const auto same = many.run(batches, {0.05});
  for (std::size_t b = 0; b < losses.size(); ++b) EXPECT_NEAR(losses[b][0], same[b][0], 1e-6) << b;
  s = {};
  s.stages = 2;
  s.schedule = ScheduleKind::dualpipe;
  TrainStep lagged = step(s);
  EXPECT_NE(losses, lagged.run(batches, {0.05})) << "several batches are in flight";
}

TEST_F(TrainSteps, TraceOnceForEachInputTypeAndKeepSoMany) {
  std::vector<std::string> told;
  TrainStepOptions options;
  options.most_programs = 2;
  options.log = [&](const std::string& text) { told.push_back(text); };
  TrainStep trained = step({}, options);
  for (const std::int64_t samples : {8, 4, 8, 4, 2, 8, 4}) trained(batch(samples, samples), 0.1);
  EXPECT_EQ(trained.traces(), 5) << "8, 4, 2 in place of 8, 8 in place of 4, 4 in place of 2";
  ASSERT_EQ(told.size(), 5u);
  EXPECT_NE(told[2].find("(f32[2, "), std::string::npos) << told[2];

  TrainStepOptions roomy;
  TrainStep other = step({}, roomy);
  for (const std::int64_t samples : {8, 4, 8, 4, 2, 8, 4}) other(batch(samples, samples), 0.1);
  EXPECT_EQ(other.traces(), 3);
  for (const auto& [path, value] : trained.state())
    EXPECT_EQ(value.values(), other.state().at(path).values());
}

TEST_F(TrainSteps, GoOnWhereOthersStopped) {
  TrainStep whole = step(), first = step();
  for (int b = 0; b < 6; ++b) whole(batch(b), 0.1);
  for (int b = 0; b < 3; ++b) first(batch(b), 0.1);
  TrainStep second = step();
  second.load(first.state(), first.batches());
  for (int b = 3; b < 6; ++b) second(batch(b), 0.1);
  for (const auto& [path, value] : whole.state()) EXPECT_EQ(value.values(), second.state().at(path).values());
}

TEST_F(TrainSteps, RefuseWhatDoesNotFit) {
  Strategy s;
  s.replicas = 3;
  TrainStep three = step(s);
  EXPECT_THROW(three(batch(0), 0.1), Error);
  TrainStep trained = step();
  EXPECT_THROW(trained.run({batch(0), batch(1, 4)}, {0.1}), Error);
  EXPECT_THROW(trained.run({batch(0)}, {0.1, 0.2}), Error);
  EXPECT_TRUE(trained.run({}, {0.1}).empty());
  EXPECT_THROW(trained.load(trained.state(), -1), Error);
  s.replicas = 0;
  EXPECT_THROW(step(s), Error);
}

}  // namespace
}  // namespace tandem
