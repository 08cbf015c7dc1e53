// A TrainStep and the modules that it trains have one state.
#include <array>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/graph/state_dict.h>
#include <tandem/tandem.h>

#include "class_dataset.h"
#include "expect_error.h"
#include "trained_modules.h"

namespace tandem::testing {
namespace {

TEST_F(TrainedModules, HaveTheNewWeightsAfterEachStep) {
  TrainStep step(net, SgdOptions{.momentum = 0.9}, loss(net));
  TrainStep copied(loss(net), net.state(), {.strategy = {.optimizer = SgdOptions{.momentum = 0.9}}});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(step({x, y}, 0.1), copied({x, y}, 0.1));
    expect_equal(net.state(), copied.state());
  }
  const nn::ModeScope evaluation(net, false);
  Net other;
  other.load(net.state());
  other.eval();
  EXPECT_EQ(net(x).values(), other(x).values());
}

TEST_F(TrainedModules, KeepTheWeightsWhenTheStepEnds) {
  StateDict trained;
  {
    TrainStep step(net, AdamOptions{}, loss(net));
    step({x, y}, 0.1);
    trained = step.state();
  }
  for (const auto& [path, p] : net.named_parameters())
    EXPECT_EQ(p->tensor.values(), trained.at(path).values()) << path;
}

TEST_F(TrainedModules, AreUsedAsTheyWereChangedBetweenSteps) {
  TrainStep step(net, SgdOptions{}, loss(net));
  step({x, y}, 0.1);
  const auto next_of = [&](const StateDict& state) {
    TrainStep fresh(loss(net), state);
    fresh({x, y}, 0.1);
    return fresh.state();
  };
  assign(net.head.weight, clamp(net.head.weight, -0.1, 0.1));
  auto expected = next_of(net.state());
  step({x, y}, 0.1);
  expect_equal(net.state(), expected);

  net.hidden.bias.as<double>()[2] = 5;
  expected = next_of(net.state());
  step({x, y}, 0.1);
  expect_equal(net.state(), expected);

  net.initialize(7);
  expected = next_of(net.state());
  step({x, y}, 0.1);
  expect_equal(net.state(), expected);
}

TEST_F(TrainedModules, AreKnownByTheirTensorsAndNotByTheirPaths) {
  Net other;
  other.initialize(2);
  TrainStep step(net, SgdOptions{}, loss(other));
  expect_error([&] { step({x, y}, 0.1); }, {"uses the state '", "does not know", "another name"});
}

// Threads that read at once fetch each parameter once.
TEST_F(TrainedModules, AreReadByThreadsAtOnce) {
  TrainStep step(net, SgdOptions{}, loss(net));
  for (int i = 0; i < 200; ++i) {
    step({x, y}, 0.01);
    std::array<Tensor, 4> outputs;
    {
      std::vector<std::jthread> readers;
      for (Tensor& output : outputs)
        readers.emplace_back([&] {
          const NoGrad no_grad;
          output = net.head(net.hidden(x));
        });
    }
    for (const Tensor& output : outputs) EXPECT_EQ(outputs[0].values(), output.values());
  }
}

TEST_F(TrainedModules, OfAModuleThatEndedAreNotTrained) {
  struct Tuned : nn::ModuleBase {
    nn::Linear body{*this, "body", {.in = 3, .out = 4}};
    std::optional<nn::Linear> head;
    void renew() {
      head.reset();
      head.emplace(*this, "head", nn::LinearOptions{.in = 4, .out = 2});
      head->initialize(1);
    }
  } tuned;
  tuned.body.initialize(1);
  tuned.renew();
  TrainStep step(tuned, SgdOptions{}, [&](const Tensor& in, const Tensor& label) {
    return cross_entropy((*tuned.head)(tuned.body(in)), label);
  });
  step({x, y}, 0.1);
  tuned.renew();
  expect_error([&] { step({x, y}, 0.1); }, {"the module of 'head.", "ended: make another TrainStep"});
}

TEST_F(TrainedModules, AreNotAssignedByTheLossThatTrainsThem) {
  TrainStep step(net, SgdOptions{}, [&](const Tensor& in, const Tensor& label) {
    assign(net.head.bias, 0.5 * net.head.bias);
    return cross_entropy(net(in), label);
  });
  expect_error(
      [&] {
        step({x, y}, 0.1);
      },
      {"assigns to 'head.bias'", "which is trained", "requires_grad(false)"});
}

TEST_F(TrainedModules, CanBePartOfTheBatch) {
  TrainStep step(net, SgdOptions{}, [&](const Tensor& in, const Tensor& label, const Tensor& bias) {
    return cross_entropy(net(in) + bias, label);
  });
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(step({x, y, net.head.bias}, 0.1));
}

TEST_F(TrainedModules, SideBySideMustDiffer) {
  Net other;
  other.initialize(2);
  expect_error([&] { TrainStep({&net, &net}, SgdOptions{}, loss(net)); }, {"given twice"});
  expect_error(
      [&] {
        TrainStep({&net, &other}, SgdOptions{}, loss(net), {.strategy = {.models = 3}});
      },
      {"strategy.models is 3", "given 2 models"});
  other.head.requires_grad(false);
  expect_error([&] { TrainStep({&net, &other}, SgdOptions{}, loss(net)); }, {"'head.", "frozen in one"});
}

TEST_F(TrainedModules, BackwardRefusesWeightsThatAStepHasChanged) {
  TrainStep step(net, SgdOptions{}, loss(net));
  const Tensor before = mean(net(x));
  step({x, y}, 0.1);
  expect_error([&] { before.backward(); }, {"state '"});
}

// A step trains one module, and its loss uses another.
TEST_F(TrainedModules, AreTrainedInTurnsByTwoSteps) {
  Pair pair;
  pair.initialize(3);
  const auto difference = [&](const Tensors& b) { return mse_loss(pair.first(b[0]), pair.second(b[0])); };
  const auto opposite = [&](const Tensors& b) { return -mse_loss(pair.first(b[0]), pair.second(b[0])); };
  TrainStep nearer(pair.first, SgdOptions{}, difference), away(pair.second, SgdOptions{}, opposite);

  Pair by_hand;
  by_hand.load(pair.state());
  const TeamSize as_planned(1);
  const Tensor rate = Tensor::full({DType::f64, {}}, 0.1);
  const auto train = [&](nn::ModuleBase& part, double sign) {
    const Tensor loss = mse_loss(by_hand.first(x), by_hand.second(x));
    (sign > 0 ? loss : -loss).backward();
    const NoGrad no_grad;
    for (const auto& [path, p] : part.named_parameters())
      if (!p->buffer) assign(p->tensor, sgd_update(p->tensor, p->tensor.grad(), rate)[0]);
    for (const auto& [path, p] : by_hand.named_parameters()) p->tensor.set_grad({});
  };
  for (int i = 0; i < 3; ++i) {
    nearer({x}, 0.1);
    train(by_hand.first, 1);
    away({x}, 0.1);
    train(by_hand.second, -1);
  }
  expect_equal(pair.state(), by_hand.state());
}

TEST_F(TrainedModules, AreTrainedSideBySide) {
  std::array<Net, 2> nets;
  for (std::size_t m = 0; m < 2; ++m) nets[m].initialize(m + 1);
  std::vector<StateDict> alone;
  for (Net& one : nets) {
    TrainStep step(loss(one), one.state(), {.strategy = {.optimizer = SgdOptions{.momentum = 0.9}}});
    step({x, y}, 0.1);
    step({x, y}, 0.1);
    alone.push_back(step.state());
  }
  TrainStep step({&nets[0], &nets[1]}, SgdOptions{.momentum = 0.9}, loss(nets[0]));
  step.run({{x, y}}, {0.1, 0.1});
  step.run({{x, y}}, {0.1, 0.1});
  for (std::size_t m = 0; m < 2; ++m) expect_equal(nets[m].state(), alone[m]);
}

TEST_F(TrainedModules, HaveTheNewWeightsOnRanksAndStagesToo) {
  for (const Strategy& strategy :
       {Strategy{.replicas = 2},
        Strategy{.microbatches = 4, .stages = 2, .schedule = "1f1b", .cuts = {"head"}}}) {
    net.initialize(1);
    TrainStep step(net, SgdOptions{}, loss(net), {.strategy = strategy});
    TrainStep copied(loss(net), net.state(), {.strategy = strategy});
    step({x, y}, 0.1);
    copied({x, y}, 0.1);
    expect_equal(net.state(), copied.state());
    assign(net.head.weight, net.head.weight * 0.5);
    copied.load(net.state(), 1);
    step({x, y}, 0.1);
    copied({x, y}, 0.1);
    expect_equal(net.state(), copied.state());
  }
}

TEST_F(TrainedModules, TakeARatePerBatch) {
  TrainStep step(net, SgdOptions{}, loss(net));
  step.run({{x, y}, {x, y}, {x, y}}, {0.1, 0.2, 0.3});
  Net other;
  other.initialize(1);
  TrainStep one_by_one(other, SgdOptions{}, loss(other));
  for (const double rate : {0.1, 0.2, 0.3}) one_by_one({x, y}, rate);
  expect_equal(net.state(), other.state());
  expect_error(
      [&] {
        step.run({{x, y}, {x, y}, {x, y}}, {0.1, 0.2});
      },
      {"2 learning rates", "1 model", "3 batches", "one per batch and model"});
}

TEST_F(TrainedModules, StayAsTheyWereIfABatchIsBad) {
  for (const Strategy& strategy : {Strategy{}, Strategy{.replicas = 2, .microbatches = 2}}) {
    net.initialize(1);
    TrainStep step(net, SgdOptions{.momentum = 0.9}, loss(net), {.strategy = strategy});
    step({x, y}, 0.1);
    const StateDict before = step.state();
    Tensor bad = Tensor::from({0, 1, 1, 0, 1, 0, 0, 9}, {8}, DType::i32);
    expect_error([&] { step({x, bad}, 0.1); }, {"label ", "is 9"});
    expect_equal(step.state(), before);
    expect_equal(net.state(), before);
    EXPECT_EQ(step.batches(), 1);
    Net other;
    other.load([&] {
      StateDict weights = before;
      std::erase_if(weights, [](const auto& s) { return s.first.starts_with("optimizer."); });
      return weights;
    }());
    TrainStep good(other, SgdOptions{.momentum = 0.9}, loss(other), {.strategy = strategy});
    good.load(before, 1);
    EXPECT_EQ(step({x, y}, 0.1), good({x, y}, 0.1));
    expect_equal(step.state(), good.state());
    expect_error([&] { step({x, bad}, 0.1); }, {"is 9"});
    for (Net* one : {&net, &other}) assign(one->head.weight, one->head.weight * 0.5);
    EXPECT_EQ(step({x, y}, 0.1), good({x, y}, 0.1)) << "what was assigned after the failure is used";
  }
}

TEST_F(TrainedModules, KeepPartsThatTheLossDoesNotUse) {
  const auto aside = net.hidden.weight.values();
  TrainStep step(net, SgdOptions{}, [&](const Tensors& b) {
    return mse_loss(net.head(b[0]), b[0](Slice{}, Slice{0, 2}));
  });
  step({concat({x, x}, 1)(Slice{}, Slice{0, 4})}, 0.1);
  EXPECT_EQ(net.hidden.weight.values(), aside);
  EXPECT_EQ(step.state().at("hidden.weight").values(), aside);
}

// The first trace fixes the states.
TEST_F(TrainedModules, RefuseOtherModulesThatALaterTraceUses) {
  Pair pair;
  pair.initialize(3);
  TrainStep step(pair.first, SgdOptions{}, [&](const Tensors& b) {
    const Tensor y = pair.first(b[0]);
    return b[0].size(0) == 8 ? mean(y) : mse_loss(y, pair.second(b[0]));
  });
  step({x}, 0.1);
  expect_error([&] { step({slice(x, 0, 0, 4)}, 0.1); }, {"'second.", "another module", "another TrainStep"});
  step({x}, 0.1);  // goes on
}

TEST_F(TrainedModules, SayThatTheirWeightsWereLost) {
  TrainStep step(net, SgdOptions{}, loss(net));
  step({x, y}, 0.1);
  const StateDict before = step.state();
  const Tensor bad = Tensor::full({DType::i32, {8}}, 9);
  expect_error([&] { step.run({{x, y}, {x, bad}}, {0.1}); }, {"is 9"});
  expect_error([&] { net.head.weight.values(); }, {"'head.weight' was lost", "load()"});
  expect_error([&] { step({x, y}, 0.1); }, {"lost", "load()"});
  step.load(before, 1);
  expect_equal(net.state(), before);
  step({x, y}, 0.1);
}

TEST_F(TrainedModules, RefuseWhatDoesNotFitByPathOpAndShapes) {
  const auto refused = [&](const TrainStep::Loss& loss, const std::vector<std::string>& words) {
    TrainStep step(net, SgdOptions{}, loss);
    expect_error([&] { step({x, y}, 0.1); }, words);
  };
  const auto half = [&](const Tensors& b) { return slice(b[0], 1, 0, 2); };
  refused([&](const Tensors& b) { return mean(net(b[0])) + mean(net(half(b))); },
          {"hidden", "linear", "f64[8, 2]", "f64[4, 3]"});
  refused([&](const Tensors& b) { return mean(net.norm(b[0])); },
          {"norm", "batch_norm", "f64[8, 3]", "f64[4]"});
  refused([&](const Tensors& b) { return mean(net(b[0]) * net(slice(b[0], 0, 0, 4))); },
          {"mul", "f64[8, 2]", "f64[4, 2]"});
  refused([&](const Tensors& b) { return mean(gradient(net(b[0]), {net.head.weight})[0]); },
          {"gradient()", "f64[8, 2]", "one element"});
  refused(
      [&](const Tensors& b) {
        return mean(gradient(mean(net.head(net.hidden(b[0]))), {net.norm.weight})[0]);
      },
      {"gradient()", "does not depend on Tensor 0", "f64[4]"});
}

TEST_F(TrainedModules, MustFitTheStep) {
  Net none;
  expect_error([&] { TrainStep(none, SgdOptions{}, loss(none)); }, {"has no contents yet", "initialize()"});
  struct Empty : nn::ModuleBase {
  } empty;
  expect_error([&] { TrainStep(empty, SgdOptions{}, loss(net)); }, {"a model with parameters"});
  struct Other : nn::Module {
    nn::Linear hidden{*this, "hidden", {.in = 3, .out = 4}};
    Tensor forward(const Tensor& x) override { return hidden(x); }
  } other;
  other.initialize(1);
  expect_error([&] { TrainStep({&net, &other}, SgdOptions{}, loss(net)); }, {"same structure", "1 of 2"});
  expect_error([&] { TrainStep(std::vector<nn::ModuleBase*>{}, SgdOptions{}, loss(net)); },
               {"at least one model"});
}

// A model of the samples of a ClassDataset.
struct Classifier : nn::Module {
  Classifier() { initialize(1); }
  Tensor forward(const Tensor& in) override { return head(in); }
  const nn::DtypeScope f32{DType::f32};  // before the layer, which follows it
  nn::Linear head{*this, "head", {.in = 4, .out = 3}};
};

// In the callbacks of a Trainer too.
TEST_F(TrainedModules, HaveTheNewWeightsAfterEachEpoch) {
  Classifier classifier;
  std::vector<StateDict> weights;
  std::vector<double> changed;
  Trainer trainer(classifier, std::make_shared<ClassDataset>(60, 5), {.batch_size = 20, .epochs = 3});
  trainer.add({.end_epoch = [&](const EpochResult&) {
    weights.push_back(classifier.state());
    expect_equal(weights.back(), trainer.session().state());
    assign(classifier.head.bias, classifier.head.bias * 0.5);
  }});
  const auto begin = classifier.state();
  trainer.fit();
  ASSERT_EQ(weights.size(), 3u);
  EXPECT_NE(weights[0].at("head.bias").values(), begin.at("head.bias").values());
  const auto halved = weights[2].at("head.bias").values(), now = classifier.head.bias.values();
  for (std::size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i], halved[i] / 2);
}

TEST_F(TrainedModules, AreEvaluatedAndSavedAsTheyWereChanged) {
  Classifier classifier;
  const auto data = std::make_shared<ClassDataset>(60, 5);
  Trainer trainer(classifier, data, {.batch_size = 20, .epochs = 2, .test = data, .checkpoint_every = 3});
  std::vector<double> saved;
  trainer.add({.before_checkpoint = [&] { assign(classifier.head.bias, classifier.head.bias * 0.0 + 7.0); },
               .checkpoint = [&](const CheckpointResult& c) { saved = c.state.at("head.bias").values(); }});
  trainer.fit();
  EXPECT_EQ(saved, (std::vector<double>{7, 7, 7}));
  const double before = trainer.evaluate().at(0);
  assign(classifier.head.weight, -classifier.head.weight);
  EXPECT_NE(trainer.evaluate().at(0), before);
}

}  // namespace
}  // namespace tandem::testing
