// Features of all modules: contents, modes, children.
#include <cmath>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/pool_layers.h>
#include <tandem/nn/recurrent_layers.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/index.h>
#include <tandem/ops/init.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

#include "expect_error.h"

namespace tandem::nn {
namespace {

using testing::expect_error;
using testing::message_of;

TEST(Module, NamesWhatIsMissing) {
  struct Own : Module {
    Tensor w = add_parameter({.name = "w", .tensor = Tensor::zeros({DType::f32, {2}}), .initialize = {}});
    Tensor forward(const Tensor& x) override { return x * w; }
  } own;
  expect_error([&] { own(Tensor::zeros({DType::f32, {2}})); }, {"parameter 'w' has no contents yet"});
  expect_error([&] { own.state(); }, {"parameter 'w' has no contents yet"});
  expect_error([&] { own.initialize(1); }, {"parameter 'w' has no function `initialize`"});
  own.load({{"w", Tensor::from({1, 2}, {2})}});
  EXPECT_EQ(own(Tensor::from({1, 1}, {2})).values(), (std::vector<double>{1, 2}));
}

TEST(Module, RefusesInitialValuesOfAnotherType) {
  struct Own : Module {
    explicit Own(const Tensor& begins)
        : w(add_parameter(
              {.name = "w",
               .tensor = Tensor::zeros({DType::f32, {2}}),
               .initialize = [=](const TensorType&, const std::string&, std::uint64_t) { return begins; }})) {
    }
    Tensor forward(const Tensor& x) override { return x * w; }
    Tensor w;
  };
  for (const Tensor& wrong : {Tensor(), Tensor::zeros({DType::f64, {2}}), Tensor::zeros({DType::f32, {1}}),
                              Tensor::zeros({DType::f32, {2, 1}})})
    expect_error([&] { Own(wrong).initialize(1); }, {"parameter 'w' is f32[2]", "`initialize` gives"});
  Own(Tensor::zeros({DType::f32, {2}})).initialize(1);
}

TEST(Module, RefusesNamesThatAreNotOnePathComponent) {
  struct Parts : Module {
    Parts(const std::string& parameter, const std::string& child) {
      add_parameter("w", Tensor::zeros({DType::f32, {2}}));
      add_parameter(parameter, Tensor::zeros({DType::f32, {2}}));
      layer = std::make_unique<Linear>(*this, child, LinearOptions{.in = 2, .out = 2});
    }
    Tensor forward(const Tensor& x) override { return x; }
    std::unique_ptr<Linear> layer;
  };
  const Parts good("b", "0");
  expect_error([] { Parts("w", "fc"); }, {"two parts called 'w'"});
  expect_error([] { Parts("b", "w"); }, {"two parts called 'w'"});
  for (const char* name : {"", "a.b", "optimizer"}) {
    expect_error([&] { Parts(name, "fc"); }, {fmt::format("'{}' cannot name a part", name)});
    expect_error([&] { Parts("b", name); }, {fmt::format("'{}' cannot name a part", name)});
  }
}

TEST(Module, RefusesLayersWithoutASize) {
  struct Net : Module {
    Tensor forward(const Tensor& x) override { return x; }
  } net;
  expect_error([&] { Linear(net, "a", {.in = 2}); }, {"linear layer 'a' has .in = 2, .out = 0", ".out"});
  expect_error([&] { Linear(net, "b", {.out = 2}); }, {"'b' has .in = 0, .out = 2"});
  expect_error([&] { Conv2d(net, "c", {.in = 2}); }, {"convolution 'c' has .in = 2, .out = 0"});
  expect_error([&] { ConvTranspose2d(net, "d", {.out = 2}); },
               {"transposed convolution 'd' has .in = 0, .out = 2"});
  EXPECT_TRUE(net.children().empty());
}

// Also where no op or kernel knows it; in a trace and at once.
TEST(Layers, NoLookupTrainsTheRowOfPadding) {
  struct Net : nn::Module {
    Tensor forward(const Tensor& ids) override { return table(ids); }
    nn::Embedding table{*this, "table", {.count = 4, .features = 3, .padding = 2}};
  } net;
  net.initialize(1);
  const Tensor ids = Tensor::from(std::vector<double>{2, 0, 2, 3}, {2, 2}, DType::i32);
  const Tensor rows = net(ids), table = net.state().at("table.weight");
  EXPECT_EQ(embedding(table, ids).values(), rows.values());
  sum(rows).backward();
  EXPECT_EQ((std::vector<double>{1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1}), net.table.weight.grad().values());
  expect_error([&] { nn::Embedding(net, "other", {.count = 4, .features = 3, .padding = 4}); },
               {"'other'", ".padding = 4", "4 ids"});
}

TEST(Module, NamesItselfInErrors) {
  struct Net : nn::ModuleOf<Tensor(const Tensor&, const Tensor&)> {
    nn::Embedding words{*this, "words", {.count = 4, .features = 3}};
    struct Head : nn::Module {
      using Module::Module;
      nn::Linear out{*this, "out", {.in = 3, .out = 2}};
      Tensor forward(const Tensor& x) override { return out(concat({x}, 1)(Slice{}, Slice{0, x.size(-1)})); }
    } head{*this, "head"};
    Tensor forward(const Tensor& ids, const Tensor& x) override { return head(words(ids) + x); }
  } net;
  net.initialize(1);
  const Tensor x = Tensor::zeros({DType::f32, {2, 3}}), ids = Tensor::from(std::vector{1, 3}, {2});
  expect_error(
      [&] {
        net(Tensor::from(std::vector{1, 4}, {2}), x);
      },
      {"words: embedding(f32[4, 3], i32[2]): index 4 of sample 1 is outside the range 0 to 3"});
  const auto traced = [&](const TensorType& type) {
    engine::Graph graph;
    engine::Trace trace(graph);
    net.head(trace.input("x", type));
  };
  const std::string wide = "head.out: linear: x f32[2, 4] has 4 features, and the weight f32[2, 3] takes 3";
  EXPECT_EQ(wide, message_of([&] { net.head(Tensor::zeros({DType::f32, {2, 4}})); }));
  EXPECT_EQ(wide, message_of([&] { traced({DType::f32, {2, 4}}); }));
  expect_error([&] { net.head(Tensor::zeros({DType::f32, {3}})); }, {"head: ", "axis 1"});
  expect_error([&] { net(ids, Tensor()); }, {"a Tensor is used that was given no value"});
}

// Lengths are known only while the op runs.
TEST(Module, IsNamedWhereALengthExceedsTheSteps) {
  struct Net : nn::ModuleOf<Tensor(const Tensor&, const Tensor&, const Tensor&)> {
    nn::Lstm reader{*this, "reader", {.in = 2, .cells = 3}};
    nn::ResidualLstm writer{*this, "writer", {.features = 3, .cells = 4}};
    Tensor forward(const Tensor& x, const Tensor& read, const Tensor& written) override {
      return writer(reader(x, read), written);
    }
  } net;
  net.initialize(1);
  const Tensor x = Tensor::zeros({DType::f32, {2, 5, 2}});
  const auto lengths = [](std::int32_t first, std::int32_t second) {
    return Tensor::from(std::vector<std::int32_t>{first, second}, {2});
  };
  EXPECT_EQ((Shape{2, 5, 3}), net(x, lengths(0, 5), lengths(5, 3)).shape());
  expect_error([&] { net(x, lengths(5, 6), lengths(5, 5)); },
               {"reader: ", "length 6 of row 1 is outside the range 0 to 5"});
  expect_error([&] { net(x, lengths(5, 5), lengths(-1, 5)); },
               {"writer: ", "length -1 of row 0 is outside the range 0 to 5"});
}

TEST(Module, RefusesParametersThatCannotBeTrained) {
  struct Net : nn::ModuleBase {
    explicit Net(const Tensor& tensor) { add_parameter({.name = "w", .tensor = tensor, .initialize = {}}); }
  };
  expect_error([] { Net(Tensor{}); }, {"parameter 'w' has no Tensor"});
  expect_error([] { Net(Tensor::zeros({DType::i32, {2}})); }, {"parameter 'w' is i32[2]", "add_buffer"});
}

// The values that a part draws do not depend on whether its root begins it.
TEST(Module, BeginsPartByPartAsAWhole) {
  struct Pair : nn::ModuleBase {
    nn::Linear a{*this, "a", {.in = 2, .out = 2}}, b{*this, "b", {.in = 2, .out = 2}};
  } whole, parts;
  whole.initialize(1);
  parts.a.initialize(1);
  parts.b.initialize(1);
  EXPECT_EQ(whole.b.weight.values(), parts.b.weight.values());
  EXPECT_NE(parts.a.weight.values(), parts.b.weight.values());
}

TEST(Module, LoadsAWholeStateOrNothing) {
  struct Net : nn::ModuleBase {
    nn::Linear a{*this, "a", {.in = 2, .out = 2}}, b{*this, "b", {.in = 2, .out = 2}};
  } net, other;
  net.initialize(1);
  const StateDict before = net.state();
  StateDict state = before;
  state.at("a.bias") = Tensor::full({DType::f32, {2}}, 7);
  state.at("b.weight") = other.b.weight;  // without contents
  EXPECT_THROW(net.load(state), Error);
  EXPECT_EQ(before.at("a.bias").values(), net.a.bias.values());
  state.at("b.weight") = Tensor();
  EXPECT_NE(std::string::npos, message_of([&] { net.load(state); }).find("without a value: b.weight"));
  EXPECT_EQ(before.at("a.bias").values(), net.a.bias.values());
  expect_error([&] { detach(other.a.weight); }, {"'a.weight' has no contents yet"});
}

// Replacing the head of a network is usual before fine-tuning.
TEST(Module, ADestroyedChildFreesItsName) {
  struct Net : Module {
    std::unique_ptr<Linear> head = std::make_unique<Linear>(*this, "head", LinearOptions{.in = 2, .out = 3});
    Linear body{*this, "body", {.in = 2, .out = 2}};
    Tensor forward(const Tensor& x) override { return (*head)(body(x)); }
  } net;
  net.head.reset();
  EXPECT_EQ(1u, net.children().size());
  net.head = std::make_unique<Linear>(net, "head", LinearOptions{.in = 2, .out = 5});
  net.initialize(1);
  EXPECT_EQ((Shape{5, 2}), net.state().at("head.weight").shape());
  auto parent = std::make_unique<Net>();
  const auto outlives = std::make_unique<Linear>(*parent, "other", LinearOptions{.in = 1, .out = 1});
  parent.reset();
}

// Also if another state is loaded or drawn.
TEST(Module, AStateIsASnapshot) {
  struct Net : Module {
    Linear fc{*this, "fc", {.in = 2, .out = 2}};
    Tensor forward(const Tensor& x) override { return fc(x); }
  } net;
  net.initialize(1);
  const auto first = net.state();
  const auto values = first.at("fc.weight").values();
  net.initialize(2);
  EXPECT_NE(values, net.state().at("fc.weight").values());
  EXPECT_EQ(values, first.at("fc.weight").values());
  net.load(first);
  EXPECT_EQ(values, net.state().at("fc.weight").values());
}

TEST(ModeScope, RestoresTheModeOfEveryModule) {
  struct Net : Module {
    Linear a{*this, "a", {.in = 2, .out = 2}}, b{*this, "b", {.in = 2, .out = 2}};
    Tensor forward(const Tensor& x) override { return b(a(x)); }
  } net;
  net.b.eval();
  {
    const ModeScope evaluating(net, false);
    EXPECT_FALSE(net.training() || net.a.training() || net.b.training());
    const ModeScope training(net, true);
    EXPECT_TRUE(net.training() && net.a.training() && net.b.training());
  }
  EXPECT_TRUE(net.training() && net.a.training());
  EXPECT_FALSE(net.b.training());
}

// Rows and columns have separate kernels, strides, and paddings.
TEST(Layers, AcceptNonSquareWindows) {
  struct Net : Module {
    Conv2d conv{*this, "conv", {.in = 3, .out = 4, .kernel = {1, 7}, .stride = {2, 1}, .padding = {0, 3}}};
    ConvTranspose2d up{
        *this, "up", {.in = 4, .out = 2, .kernel = {4, 1}, .stride = {2, 1}, .padding = {1, 0}}};
    MaxPool2d pool{*this, "pool", {.kernel = {1, 2}}};
    Tensor forward(const Tensor& x) override { return pool(up(conv(x))); }
  } net;
  net.initialize(3);
  std::vector<std::string> names;
  for (const ModuleBase* child : net.children()) names.push_back(child->name());
  EXPECT_EQ((std::vector<std::string>{"conv", "up", "pool"}), names);
  const auto state = net.state();
  EXPECT_EQ((Shape{4, 1, 7, 3}), state.at("conv.weight").shape());
  EXPECT_EQ((Shape{4, 4, 1, 2}), state.at("up.weight").shape());
  for (const double w : state.at("conv.weight").values())
    EXPECT_LE(std::fabs(w), 1 / std::sqrt(21.0)) << "uniform in ±1/√fan_in";
  const NoGrad no_grad;
  const Tensor x = init::normal({DType::f32, {2, 8, 6, 3}}, 0, 1, "x", 1);
  const Tensor y =
      conv2d(x, state.at("conv.weight"), state.at("conv.bias"), {.stride = {2, 1}, .padding = {0, 3}});
  EXPECT_EQ((Shape{2, 4, 6, 4}), y.shape());
  const Tensor z =
      conv_transpose2d(y, state.at("up.weight"), state.at("up.bias"), {.stride = {2, 1}, .padding = {1, 0}});
  EXPECT_EQ((Shape{2, 8, 6, 2}), z.shape());
  EXPECT_EQ(max_pool2d(z, {{1, 2}, 0, 0}).values(), net(x).values());
}

}  // namespace
}  // namespace tandem::nn
