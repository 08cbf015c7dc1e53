// What a TrainStep and its modules begin with: parts, states that are loaded.
#include <memory>

#include <gtest/gtest.h>

#include <tandem/tandem.h>

#include "class_dataset.h"
#include "expect_error.h"
#include "trained_modules.h"

namespace tandem::testing {
namespace {

TEST_F(TrainedModules, FollowAPartThatIsLoaded) {
  TrainStep step(net, SgdOptions{}, loss(net));
  step({x, y}, 0.1);
  Net other;
  other.initialize(2);
  net.head.load(other.head.state());
  TrainStep expected(loss(net), net.state());
  EXPECT_EQ(expected({x, y}, 0.1), step({x, y}, 0.1));
  expect_equal(net.state(), expected.state());
}

TEST_F(TrainedModules, CanBeginPartByPart) {
  Pair pair;
  pair.first.initialize(1);
  pair.second.initialize(1);
  TrainStep step(pair, SgdOptions{}, [&](const Tensor& in, const Tensor& label) {
    return cross_entropy(pair.first(in) + pair.second(in), label);
  });
  EXPECT_NO_THROW(step({x, y}, 0.1));
  EXPECT_NO_THROW(pair.load(step.state()));
}

TEST_F(TrainedModules, FollowAStateThatIsLoaded) {
  TrainStep step(net, SgdOptions{.momentum = 0.9}, loss(net));
  step({x, y}, 0.1);
  const StateDict saved = step.state();
  step({x, y}, 0.1);
  const StateDict second = step.state();
  step.load(saved, 1);
  expect_equal(net.state(), saved);
  step({x, y}, 0.1);
  expect_equal(step.state(), second);

  TrainStep resumed(net, SgdOptions{.momentum = 0.9}, loss(net));
  resumed.load(saved, 1);
  expect_equal(net.state(), saved);
  resumed({x, y}, 0.1);
  expect_equal(net.state(), second);
}

// Before the first batch, what the models have is checked at once, and the rest when the loss is known.
TEST_F(TrainedModules, RefuseAStateThatDoesNotFitBeforeTheFirstBatch) {
  const StateDict before = net.state();
  TrainStep step(net, SgdOptions{}, loss(net));
  StateDict state = before;
  state.at("head.bias") = Tensor::full({DType::f64, {2}}, 9);
  state.at("head.weight") = Tensor::zeros({DType::f64, {2, 7}});
  state.erase("hidden.bias");
  expect_error([&] { step.load(state, 5); },
               {"missing hidden.bias", "head.weight is f64[2, 7], the model's f64[2, 4]"});
  expect_equal(before, net.state());
  EXPECT_EQ(0, step.batches());
  state = before;
  state.emplace("tail.bias", Tensor::zeros({DType::f64, {2}}));
  step.load(state, 5);
  expect_error([&] { step({x, y}, 0.1); }, {"has 'tail.bias', which neither the models nor the loss have"});
  step.load(before, 5);
  EXPECT_NO_THROW(step({x, y}, 0.1));
}

// A teacher is no part of what the step trains, and its weights are in the step's state all the same.
TEST_F(TrainedModules, ContinueWithTheOtherModulesThatTheLossUses) {
  struct Taught : nn::ModuleBase {
    nn::Linear student{*this, "student", {.in = 3, .out = 2}}, teacher{*this, "teacher", {.in = 3, .out = 2}};
  };
  const auto taught = [&](Taught& t) {
    return [&](const Tensor& in) {
      assign(t.teacher.weight, 0.9 * t.teacher.weight + 0.1 * detach(t.student.weight));
      return mse_loss(t.student(in), detach(t.teacher(in)));
    };
  };
  Taught first, second;
  first.initialize(1);
  second.initialize(2);
  TrainStep step(first.student, SgdOptions{}, taught(first));
  step({x}, 0.1);
  TrainStep resumed(second.student, SgdOptions{}, taught(second));
  resumed.load(step.state(), step.batches());
  EXPECT_EQ(step({x}, 0.1), resumed({x}, 0.1));
  expect_equal(first.state(), second.state());
}

TEST_F(TrainedModules, CanBeAPartOfAModel) {
  Pair pair;
  pair.initialize(1);
  TrainStep step(pair.second, SgdOptions{.momentum = 0.9}, loss(pair.second));
  const StateDict before = pair.second.state();
  step({x, y}, 0.1);
  const StateDict trained = step.state();
  EXPECT_NE(before.at("head.bias").values(), pair.second.head.bias.values());
  pair.second.load(before);
  pair.second.load(trained);  // whose paths begin at the root
  EXPECT_EQ(trained.at("second.head.bias").values(), pair.second.head.bias.values());
  expect_error([&] { Trainer(pair.second, std::make_shared<ClassDataset>(20, 1), {.batch_size = 10}); },
               {"'second' is a part of another module", "TrainStep"});
}

}  // namespace
}  // namespace tandem::testing
