// Training as a function of a batch.
#include <cmath>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/core/graph/trace.h>
#include <tandem/nn/layers.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/init.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/plan/gradient_rules.h>
#include <tandem/train/train_step.h>

#include "expect_error.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

class TrainSteps : public ::testing::Test {
 protected:
  TrainSteps() {
    nn::set_default_dtype(DType::f32);
    job = small_residual_job();
    net = job.model();
    net->initialize(job.seeds[0]);
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
  StateDict velocity;
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
  s.schedule = "1f1b";
  TrainStep many = step(s);
  const auto same = many.run(batches, {0.05});
  for (std::size_t b = 0; b < losses.size(); ++b) EXPECT_NEAR(losses[b][0], same[b][0], 1e-6) << b;
  s = {};
  s.stages = 2;
  s.schedule = "dualpipe";
  TrainStep lagged = step(s);
  EXPECT_NE(losses, lagged.run(batches, {0.05})) << "several batches are in flight";
  expect_error([&] { lagged(batches.at(0), 0.05); },
               {"several batches are in flight", "run(batches, rates)", "1f1b"});
}

// The last stage predicts the last batches' weights by updates that come after the run.
TEST_F(TrainSteps, PredictWithTheLastRateAfterTheLastBatch) {
  Strategy s;
  s.stages = 3;
  s.schedule = "spectrain";
  std::vector<Tensors> batches;
  for (int b = 0; b < 8; ++b) batches.push_back(batch(b));
  const std::vector<Tensors> fewer(batches.begin(), batches.begin() + 5);
  std::vector<double> rates{0.1, 0.08, 0.06, 0.04, 0.02, 0.02, 0.02, 0.02};
  auto longer = step(s).run(batches, rates);
  rates.resize(fewer.size());
  const auto losses = step(s).run(fewer, rates);
  longer.resize(fewer.size());
  EXPECT_EQ(longer, losses);
}

TEST(Deliver, WorksOnlyInATrace) {
  expect_error([] { deliver("correct", Tensor::full({}, 1)); }, {"'correct'", "only a traced function"});
}

// With ranks and micro-batches the loss is the mean over the parts, and a number is their sum.
TEST_F(TrainSteps, GiveOtherResultsOfTheLossFunctionByBatch) {
  const auto counted = [&](const Strategy& s, const StateDict& state) {
    return TrainStep(
        [&](const Tensors& b) {
          const Tensor output = (*net)(b[0]);
          deliver("correct", correct_count(output, b[1]));
          return cross_entropy(output, b[1]);
        },
        state, {.strategy = s, .seeds = std::vector<std::uint64_t>(static_cast<std::size_t>(s.models))});
  };
  const auto state = net->state();
  const auto correct = [&](std::int64_t b) {
    const NoGrad no_grad;
    return correct_count((*net)(batch(b)[0]), batch(b)[1]).item();
  };
  for (const Strategy& s : {Strategy{}, Strategy{.replicas = 2}, Strategy{.microbatches = 4}}) {
    TrainStep trained = counted(s, state);
    EXPECT_TRUE(trained.results().empty());
    const auto losses = trained.run({batch(0), batch(1)}, {0});
    ASSERT_EQ(2u, trained.results().size());
    for (std::size_t b = 0; b < 2; ++b) {
      EXPECT_EQ(losses[b][0], trained.results()[b].at("loss").item());
      EXPECT_EQ(correct(static_cast<std::int64_t>(b)), trained.results()[b].at("correct").item());
    }
  }
  TrainStep both = counted({.models = 2}, stack_states(std::vector{state, state}));
  expect_error([&] { both(batch(0), 0.1); }, {"2 models", "run({batch}, rates)"});
  both.run({batch(3)}, {0, 0});
  EXPECT_EQ((std::vector<double>{correct(3), correct(3)}), both.results()[0].at("correct").values());
}

TEST_F(TrainSteps, TraceOncePerInputTypeAndKeepALimitedNumber) {
  std::vector<std::string> told;
  TrainStepOptions options;
  options.most_programs = 2;
  options.log = [&](const std::string& text) { told.push_back(text); };
  std::vector<std::string> warned;
  options.warn = [&](const std::string& text) { warned.push_back(text); };
  TrainStep trained = step({}, options);
  for (const std::int64_t samples : {8, 4, 8, 4, 2, 8, 4}) trained(batch(samples, samples), 0.1);
  EXPECT_EQ(trained.traces(), 5) << "8, 4, 2 replaces 8, 8 replaces 4, 4 replaces 2";
  ASSERT_EQ(told.size(), 5u);
  EXPECT_NE(told[2].find("(f32[2, "), std::string::npos) << told[2];
  ASSERT_EQ(warned.size(), 1u);
  EXPECT_NE(warned[0].find("makes Program 3, for batches of (f32[2, "), std::string::npos) << warned[0];
  EXPECT_NE(warned[0].find("drops one of the 2 that it keeps"), std::string::npos) << warned[0];

  TrainStepOptions roomy;
  roomy.warn = [](const std::string& text) { ADD_FAILURE() << text; };
  TrainStep other = step({}, roomy);
  for (const std::int64_t samples : {8, 4, 8, 4, 2, 8, 4}) other(batch(samples, samples), 0.1);
  EXPECT_EQ(other.traces(), 3);
  for (const auto& [path, value] : trained.state())
    EXPECT_EQ(value.values(), other.state().at(path).values());
}

// Once per reason, although a second Program is made.
TEST(TrainStepTables, SayWhyTheirUpdatesAreDense) {
  struct Net : nn::Module {
    nn::Embedding a{*this, "a", {.count = 9, .features = 4}}, b{*this, "b", {.count = 5, .features = 4}};
    Tensor forward(const Tensor& ids) override {
      const Tensor rows = a(ids);
      return mean(rows + b(ids), {1});
    }
  } net;
  net.initialize(1);
  const auto told = [&](const Optimizer& optimizer, Strategy strategy = {}) {
    std::vector<std::string> lines;
    TrainStep step(net, optimizer, [&](const Tensors& batch) { return mean(net(batch[0])); },
                   {.strategy = strategy, .log = [&](const std::string& line) { lines.push_back(line); }});
    for (const std::int64_t samples : {2, 4}) step(Tensor::zeros({DType::i32, {samples, 3}}), 0.1);
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("Program "); });
    return lines;
  };
  EXPECT_EQ(std::vector<std::string>{}, told(SgdOptions{}));
  EXPECT_EQ(
      std::vector<std::string>{
          "the updates of 2 tables, such as 'a.weight', are dense: momentum moves every row"},
      told(SgdOptions{.momentum = 0.9}));
  EXPECT_EQ(std::vector<std::string>{"the update of table 'b.weight' is dense: weight decay moves every row"},
            told(SgdOptions{}, {.parameter_groups = {{.parameters = {"b.weight"}, .weight_decay = 0.1}}}));
  EXPECT_EQ(std::vector<std::string>{}, told(AdamOptions{}, {.sparse_updates = false}))
      << "as it was asked for";
}

TEST_F(TrainSteps, ContinueWhereAnotherStopped) {
  TrainStep whole = step(), first = step();
  for (int b = 0; b < 6; ++b) whole(batch(b), 0.1);
  for (int b = 0; b < 3; ++b) first(batch(b), 0.1);
  TrainStep second = step();
  second.load(first.state(), first.batches());
  for (int b = 3; b < 6; ++b) second(batch(b), 0.1);
  for (const auto& [path, value] : whole.state()) EXPECT_EQ(value.values(), second.state().at(path).values());
}

// On one rank, and on several, which fail together. The first update is done by then.
TEST_F(TrainSteps, ContinueFromAnotherStateAfterAFailure) {
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(replicas);
    Strategy s;
    s.replicas = replicas;
    TrainStep whole = step(s), failing = step(s);
    const double first = whole(batch(0), 0.1), second = whole(batch(1), 0.1);
    EXPECT_EQ(first, failing(batch(0), 0.1));
    const auto state = failing.state();
    Tensors bad = batch(1);
    bad[1].as<std::int32_t>()[7] = 1000;  // no such class
    EXPECT_THROW(failing.run({batch(1), bad}, {0.1}), Error);
    EXPECT_THROW(failing.state(), Error) << "the state is between two batches";
    EXPECT_THROW(failing(batch(1), 0.1), Error);
    failing.load(state, 1);
    EXPECT_EQ(second, failing(batch(1), 0.1));
    expect_same_state(whole.state(), failing.state());
  }
}

// Pooling and batch norm of only the data, and a state that keeps its mean.
struct OfDataAlone : nn::Module {
  Tensor kept = add_buffer("mean", Tensor::zeros({DType::f32, {2}}));
  nn::BatchNorm norm{*this, "norm", {.channels = 2}};
  nn::Linear head{*this, "head", {.in = 8, .out = 3}};
  Tensor forward(const Tensor& x) override {
    assign(kept, mean(x, {0, 1, 2}));
    return head(flatten(norm(max_pool2d(x, 2))));
  }
};

TEST(TrainStepsOfSeveralModels, EqualEachAloneAlsoInResultsThatUseNoModel) {
  nn::set_default_dtype(DType::f32);
  const Tensor x = init::normal({DType::f32, {4, 4, 4, 2}}, 1, 2, "x", 5),
               y = Tensor::from({0, 1, 2, 1}, {4}, DType::i32);
  OfDataAlone model;
  const auto trained = [&](int models, const StateDict& state) {
    TrainStep step([&](const Tensors& b) { return cross_entropy(model(b[0]), b[1]); }, state,
                   {.strategy = {.models = models},
                    .seeds = std::vector<std::uint64_t>(static_cast<std::size_t>(models))});
    for (int b = 0; b < 3; ++b)
      step.run({{x, y}}, std::vector<double>(static_cast<std::size_t>(models), 0.1));
    return step.state();
  };
  std::vector<StateDict> states;
  for (const std::uint64_t seed : {1, 2}) {
    model.initialize(seed);
    states.push_back(model.state());
  }
  EXPECT_NE(states[0].at("head.weight").values(), states[1].at("head.weight").values());
  const auto together = unstack_states(trained(2, stack_states(states)), 2);
  for (std::size_t m = 0; m < 2; ++m) expect_same_state(trained(1, states[m]), together[m]);
}

TEST_F(TrainSteps, StayUnchangedIfAStateIsRefused) {
  TrainStep trained = step();
  trained(batch(0), 0.1);
  const auto before = trained.state();
  auto bad = before;
  bad.rbegin()->second = Tensor::zeros({DType::f32, {1, 2, 3}});
  EXPECT_THROW(trained.load(bad, 100), Error);
  EXPECT_EQ(1, trained.batches());
  expect_same_state(before, trained.state());
}

// Also if parameters are frozen after the weights were loaded, as in fine-tuning, and if they are released
// again.
TEST_F(TrainSteps, LeaveFrozenParametersAlone) {
  const auto first = net->named_parameters()[0];
  const auto moved = [&] {
    TrainStep trained = step();
    const auto before = trained.state();
    trained(batch(0), 0.1);
    std::set<std::string> paths;
    for (const auto& [path, value] : trained.state())
      if (!path.starts_with(kOptimizerPath) && value.values() != before.at(path).values()) paths.insert(path);
    return paths;
  };
  const auto all = moved();
  EXPECT_TRUE(all.contains(first.first));
  first.second->tensor.requires_grad(false);
  auto others = all;
  others.erase(first.first);
  EXPECT_EQ(others, moved());
  const auto [images, labels] = std::pair(batch(0)[0], batch(0)[1]);
  cross_entropy((*net)(images), labels).backward();
  EXPECT_FALSE(first.second->tensor.grad().defined());
  first.second->tensor.requires_grad(true);
  EXPECT_EQ(all, moved());
}

TEST_F(TrainSteps, SkipUpdatesAndReportIt) {
  const Strategy skips{.gradients = {.skip_non_finite = true}};
  for (const bool scales : {false, true}) {
    TrainStep plain = step(),
              guarded = step(scales ? Strategy{.gradients = {.loss_scale = LossScale{.initial = 4}}} : skips);
    Tensors bad = batch(1);
    bad[0].as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(plain(batch(0), 0.1), guarded(batch(0), 0.1));
    EXPECT_EQ(1, guarded.results().at(0).at(kUpdatedResult).item());
    const auto before = guarded.state();
    EXPECT_TRUE(std::isnan(guarded(bad, 0.1)));
    EXPECT_EQ(0, guarded.results().at(0).at(kUpdatedResult).item());
    const auto after = guarded.state();
    for (const auto& [path, value] : net->state())
      EXPECT_EQ(before.at(path).values(), after.at(path).values()) << path;
    if (!scales) expect_same_state(plain.state(), before);
  }
}

// One Program was traced before the change, another would be traced after it.
TEST_F(TrainSteps, KeepStateThatTheLossDoesNotUse) {
  struct Net : nn::Module {
    nn::Linear used{*this, "used", {.in = 4, .out = 2}}, aside{*this, "aside", {.in = 4, .out = 2}};
    Tensor forward(const Tensor& x) override { return used(x); }
  } part;
  part.initialize(1);
  const auto loss = [&](const Tensors& b) { return mse_loss(part(b[0]), b[1]); };
  const Tensors data{Tensor::full({DType::f32, {2, 4}}, 1), Tensor::full({DType::f32, {2, 2}}, 1)};
  TrainStep one(loss, part.state());
  one(data, 0.1);
  TrainStep two(loss, stack_states(std::vector{part.state(), part.state()}),
                {.strategy = {.models = 2}, .seeds = {1, 2}});
  two.run({data}, {0.1, 0.1});
  const auto before = part.state(), after = one.state();
  EXPECT_EQ(before.at("aside.weight").values(), after.at("aside.weight").values());
  EXPECT_NE(before.at("used.weight").values(), after.at("used.weight").values());
  EXPECT_EQ((Shape{2, 2, 4}), two.state().at("aside.weight").shape());
  part.load(after);
}

TEST(TrainStepsOfAModelThatChanges, RefuseToMixFrozenParametersAndModes) {
  struct Normed : nn::Module {
    nn::Linear first{*this, "first", {.in = 3, .out = 4}};
    nn::BatchNorm norm{*this, "norm", {.channels = 4}};
    Tensor forward(const Tensor& x) override { return norm(first(x)); }
  } net;
  net.initialize(1);
  const auto batch = [](std::int64_t n) {
    return Tensors{init::normal({DType::f32, {n, 3}}, 0, 1, "x", 5), Tensor::zeros({DType::i32, {n}})};
  };
  TrainStep step([&](const Tensors& b) { return cross_entropy(net(b[0]), b[1]); }, net.state());
  step(batch(8), 0.1);
  auto& weight = *net.named_parameters()[0].second;
  weight.tensor.requires_grad(false);
  expect_error([&] { step(batch(4), 0.1); }, {"'first.weight' was trained", "is frozen now"});
  weight.tensor.requires_grad(true);
  net.eval();
  expect_error([&] { step(batch(4), 0.1); },
               {"'norm.running_mean' is only read", "between train() and eval()"});
  net.train();
  step(batch(4), 0.1);
  EXPECT_EQ(2, step.batches());
}

TEST_F(TrainSteps, RefuseArgumentsThatDoNotFit) {
  Strategy s;
  s.replicas = 3;
  TrainStep three = step(s);
  EXPECT_THROW(three(batch(0), 0.1), Error);
  TrainStep trained = step();
  EXPECT_THROW(trained.run({batch(0), batch(1, 4)}, {0.1}), Error);
  EXPECT_THROW(trained.run({batch(0)}, {0.1, 0.2}), Error);
  EXPECT_TRUE(trained.run({}, {0.1}).empty());
  EXPECT_THROW(trained.load(trained.state(), -1), Error);
  for (const double rate : {-0.1, std::nan(""), HUGE_VAL}) EXPECT_THROW(trained(batch(0), rate), Error);
  EXPECT_THROW(trained(Tensors{}, 0.1), Error);
  TrainStep empty = step();
  expect_error([&] { empty(batch(0, 0), 0.1); }, {"input 0 of the batch is", "has no elements"});
  EXPECT_THROW(TrainStep(BatchLoss(), net->state()), Error);
  EXPECT_THROW(TrainStep(std::function<Tensor(const Tensor&)>(), net->state()), Error);
  s.replicas = 0;
  EXPECT_THROW(step(s), Error);
  s.replicas = 1;
  s.optimizer = SgdOptions{.momentum = 1.5};
  EXPECT_THROW(check(s), Error);
  s.optimizer = SgdOptions{};
  s.parameter_groups = {{{"*.bias"}, /*lr_scale=*/-1}};
  EXPECT_THROW(check(s), Error);
}

TEST_F(TrainSteps, RefuseLossesThatTrainNothing) {
  const auto loss = [&](const Tensors& b) { return cross_entropy(detach((*net)(b[0])), b[1]); };
  TrainStep nothing(loss, net->state());
  expect_error([&] { nothing(batch(0), 0.1); }, {"the loss depends on no trained parameter", "detached"});
}

TEST_F(TrainSteps, NameWhatWasGivenNoValue) {
  TrainStep no_loss([](const Tensors&) { return Tensor(); }, net->state());
  expect_error([&] { no_loss(batch(0), 0.1); }, {"the loss returned a Tensor without a value"});
  TrainStep no_result(
      [&](const Tensors& b) {
        deliver("extra", Tensor());
        return cross_entropy((*net)(b[0]), b[1]);
      },
      net->state());
  expect_error([&] { no_result(batch(0), 0.1); }, {"result 'extra' was given no value"});
  TrainStep trained = step();
  expect_error([&] { trained({batch(0)[0], Tensor()}, 0.1); }, {"tensor 1 of the batch was given no value"});
}

TEST_F(TrainSteps, HaveNoResultsAfterARunThatFailed) {
  TrainStep trained = step();
  trained(batch(0), 0.1);
  EXPECT_EQ(1, trained.results().size());
  Tensors bad = batch(1);
  bad[1] = Tensor::full({DType::i32, {8}}, 99);
  EXPECT_THROW(trained(bad, 0.1), Error);
  EXPECT_TRUE(trained.results().empty());
}

TEST_F(TrainSteps, AreNotCalledInALoss) {
  TrainStep inner = step();
  TrainStep outer(
      [&](const Tensors& b) {
        inner(b, 0.1);
        return cross_entropy((*net)(b[0]), b[1]);
      },
      net->state());
  expect_error([&] { outer(batch(0), 0.1); }, {"a TrainStep is called in a loss", "between the steps"});
}

TEST_F(TrainSteps, GiveResultsByName) {
  TrainStep trained(
      [&](const Tensor& x, const Tensor& y) {
        const Tensor output = (*net)(x);
        deliver("correct", correct_count(output, y));
        return cross_entropy(output, y);
      },
      net->state());
  expect_error([&] { trained.result("loss"); }, {"no batch 0"});
  const double loss = trained(batch(0), 0.1);
  EXPECT_EQ(loss, trained.result("loss").item());
  EXPECT_GE(trained.result("correct").item<int>(), 0);
  expect_error([&] { trained.result("acc"); }, {"no result 'acc'", "correct, loss"});
  expect_error([&] { trained.result("loss", 1); }, {"no batch 1", "1 batch"});
}

TEST_F(TrainSteps, TakeTheBatchAsAListOrAsParameters) {
  const StateDict begin = net->state();
  TrainStep list([&](const Tensors&b) { return cross_entropy((*net)(b[0]), b[1]); }, begin),
      parameters([&](const Tensor&x, const Tensor&y) { return cross_entropy((*net)(x), y); }, begin);
  const Tensors b = batch(0);
  EXPECT_EQ(list(b, 0.1), parameters(b, 0.1));
  expect_error([&] { parameters({b[0]}, 0.1); },
               {"the loss takes 2 tensors, and the batch has 1: ", to_string(b[0].type())});
  expect_error([&] { parameters({b[0], b[1], b[1]}, 0.1); }, {"takes 2 tensors", "has 3"});
  EXPECT_EQ(list(b, 0.1), parameters(b, 0.1)) << "the state is as it was";
}

}  // namespace
}  // namespace tandem::testing
