// Weights from and for PyTorch: tests/golden/weights*, written by tests/golden/make.py, and network*, written
// by make_weights.py.
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/files.h>
#include <tandem/nn/layers.h>
#include <tandem/nn/models/convnet.h>
#include <tandem/nn/models/mlp.h>
#include <tandem/nn/models/networks.h>
#include <tandem/nn/models/resnet.h>
#include <tandem/nn/safetensors.h>
#include <tandem/nn/torch_layout.h>
#include <tandem/nn/weights.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/shape.h>

#include "expect_error.h"
#include "temporary_directory.h"
#include "test_files.h"
#include "training_run.h"

namespace tandem::nn {
using namespace engine;
namespace {

using testing::expect_error;
using testing::expect_same_state;
using testing::TemporaryDirectory;

const std::string kGolden = TANDEM_SOURCE "/tests/golden/";

// The network of this name in make.py.
struct Flattened final : Module {
  explicit Flattened(std::int64_t classes = 4) : head(*this, "head", {.in = 6, .out = classes}) {}
  Conv2d conv{*this, "conv", {.in = 3, .out = 4, .kernel = 3, .padding = 1}};
  BatchNorm norm{*this, "norm", {.channels = 4}};
  Conv2d down{*this, "down", {.in = 4, .out = 5, .kernel = 2, .bias = false}};
  Linear fc{*this, "fc", {.in = 20, .out = 6, .image = {2, 2, 5}}};
  Linear head;
  Tensor forward(const Tensor& x) override {
    const Tensor h = max_pool2d(relu(norm(conv(x))), Pool2dOptions(2));
    return head(relu(fc(flatten(relu(down(h))))));
  }
};

class Weights : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override { set_default_dtype(GetParam()); }
  void TearDown() override { set_default_dtype(DType::f32); }
  std::string golden() const { return fmt_name(GetParam()); }
  static std::string fmt_name(DType d) {
    return kGolden + "weights-" + std::string(name_of(d)) + ".safetensors";
  }
  TemporaryDirectory directory_;
};

std::vector<double> of(const nlohmann::json& j) { return j.get<std::vector<double>>(); }

TEST_P(Weights, FromPyTorchGivePyTorchsOutputs) {
  const auto json = testing::read_json(kGolden + "weights.json");
  Flattened net;
  load_weights(net, golden());
  net.eval();
  const auto output = net(Tensor::from(of(json["images"]), {3, 6, 6, 3}, GetParam())).values();
  const auto expected = of(json["output"]);
  ASSERT_EQ(expected.size(), output.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(expected[i], output[i], GetParam() == DType::f64 ? 1e-12 : 1e-6);
}

// Writing gives PyTorch's own file again, tensor by tensor and bit by bit.
TEST_P(Weights, AreWrittenAsTheyWereRead) {
  Flattened net;
  load_weights(net, golden());
  StateDict expected = SafetensorsFile(golden()).read_all();
  expect_same_state(expected, torch_state(net, net.state(), 1));
  save_weights(net, directory_.file("again.safetensors"));
  *expected.at("norm.num_batches_tracked").as<std::int64_t>() = 0;
  const SafetensorsFile again(directory_.file("again.safetensors"));
  expect_same_state(expected, again.read_all());
  EXPECT_EQ((std::map<std::string, std::string>{{"format", "pt"}, {"writer", "tandem"}}), again.metadata());
  for (const auto& [name, entry] : again.tensors())
    EXPECT_EQ(0, entry.begin % size_of(entry.type.dtype))
        << name << " must be aligned, so that it can be mapped";
  EXPECT_FALSE(std::filesystem::exists(directory_.file("again.safetensors.tmp")));
}

TEST_P(Weights, OfEveryNetworkSurviveARoundTrip) {
  for (const std::string& name : network_names()) {
    if (name == "vgg16" || name == "resnet56" || name == "snn") continue;  // larger, with the same layers
    SCOPED_TRACE(name);
    const auto net = make_network(name, 7), other = make_network(name, 7);
    net->initialize(3);
    save_weights(*net, directory_.file("w"));
    load_weights(*other, directory_.file("w"));
    expect_same_state(net->state(), other->state());
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Weights, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// torchvision's numbering; 2×2 pixels of 6 channels are flattened.
struct SmallVgg final : Module {
  struct Features final : Module {
    explicit Features(Module& parent) : Module(parent, "features") {}
    Conv2d first{*this, "0", {.in = 3, .out = 4, .kernel = 3, .padding = 1}},
        second{*this, "2", {.in = 4, .out = 5, .kernel = 3, .padding = 1}},
        third{*this, "5", {.in = 5, .out = 6, .kernel = 3, .padding = 1}};
    Tensor forward(const Tensor& x) override {
      const Tensor h = max_pool2d(relu(second(relu(first(x)))), Pool2dOptions(2));
      return max_pool2d(relu(third(h)), Pool2dOptions(2));
    }
  } features{*this};
  struct Classifier final : Module {
    explicit Classifier(Module& parent) : Module(parent, "classifier") {}
    Linear first{*this, "0", {.in = 24, .out = 7, .image = {2, 2, 6}}};
    Dropout dropout{*this, "2", 0.5};
    Linear head{*this, "3", {.in = 7, .out = 4}};
    Tensor forward(const Tensor& x) override { return head(dropout(relu(first(x)))); }
  } classifier{*this};
  Tensor forward(const Tensor& x) override { return classifier(flatten(features(x))); }
};

std::map<std::string, std::unique_ptr<Module>> golden_networks() {
  std::map<std::string, std::unique_ptr<Module>> all;
  all["mlp"] = std::make_unique<Mlp>(
      MlpOptions{.in = 192, .hidden = 6, .classes = 4, .blocks = 2, .image = {8, 8, 3}});
  all["convnet"] = std::make_unique<ConvNet>(ConvNetOptions{.channels = 3, .classes = 4, .widths = {4, 5}});
  all["resnet20"] = std::make_unique<ResNet>(ResNetOptions{.classes = 4, .width = 4});
  all["vgg"] = std::make_unique<SmallVgg>();
  return all;
}

// And are saved as they came, name by name and bit by bit, for PyTorch to load them:
//     TANDEM_SAVED_WEIGHTS=/tmp build/release/bin/nn_test && tests/golden/make_weights.py --check /tmp
TEST(NetworksOfPyTorch, GivePyTorchsOutputsAndRoundTrip) {
  set_default_dtype(DType::f32);
  const TemporaryDirectory directory;
  const char* const asked = std::getenv("TANDEM_SAVED_WEIGHTS");
  const auto json = testing::read_json(kGolden + "weights-torch.json");
  const Tensor images = Tensor::from(of(json["images"]), {3, 8, 8, 3}, DType::f32);
  for (const auto& [name, network] : golden_networks()) {
    SCOPED_TRACE(name);
    const std::string theirs = kGolden + "network-" + name + ".safetensors",
                      ours = (asked ? std::string(asked) + "/" : directory.file("")) + name + ".safetensors";
    load_weights(*network, theirs);
    network->eval();
    const auto output = (*network)(images).values(), expected = of(json["outputs"][name]);
    ASSERT_EQ(expected.size(), output.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(expected[i], output[i], 1e-5);
    save_weights(*network, ours);
    StateDict all = SafetensorsFile(theirs).read_all();
    for (auto& [path, tensor] : all)
      if (path.ends_with("num_batches_tracked")) *tensor.as<std::int64_t>() = 0;  // only a run knows it
    expect_same_state(all, SafetensorsFile(ours).read_all());
  }
}

// Files of other networks may have a hundred thousand names of any kind.
TEST(WeightsThatDoNotFit, AreListedInAReadableMessage) {
  const TemporaryDirectory directory;
  StateDict many;
  for (int i = 0; i < 1000; ++i)
    many.emplace("no\nsuch" + std::to_string(i), Tensor::empty({DType::u8, {0}}));
  replace_durably(Files::system(), directory.file("many"),
                  [&](const Sink& sink) { write_safetensors(many, sink); });
  Flattened net;
  const std::string message = testing::message_of([&] { load_weights(net, directory.file("many")); });
  testing::expect_words(message, {"missing: conv.weight", "unexpected: no?such0", "unexpected: 990 more"});
  EXPECT_LT(std::ranges::count(message, '\n'), 120);
}

TEST(WeightsThatDoNotFit, AreAllListedAndChangeNothing) {
  set_default_dtype(DType::f32);
  struct Other final : Module {
    Conv2d conv{*this, "conv", {.in = 3, .out = 4, .kernel = 5}};
    Linear fc{*this, "fc", {.in = 20, .out = 6, .image = {2, 2, 5}}};
    Linear extra{*this, "extra", {.in = 6, .out = 4}};
    Tensor forward(const Tensor& x) override { return x; }
  } net;
  net.initialize(1);
  StateDict before;
  for (const auto& [path, value] : net.state())
    before.emplace(path, Tensor::from(value.values(), value.shape()));
  testing::expect_words(
      testing::message_of([&] { load_weights(net, kGolden + "weights-f32.safetensors"); }),
      {"missing: extra.weight", "missing: extra.bias", "unexpected: norm.running_mean",
       "mismatched: conv.weight: f32[4, 3, 3, 3], the model's f32[4, 3, 5, 5]", "unexpected: head.bias"});
  expect_same_state(before, net.state());
}

TEST(WeightsThatFitInPart, AreLoadedOnRequest) {
  set_default_dtype(DType::f32);
  Flattened whole, other(9);
  load_weights(whole, kGolden + "weights-f32.safetensors");
  expect_error([&] { load_weights(other, kGolden + "weights-f32.safetensors", {.partial = true}); },
               {"head.weight", "initialize() it before"});
  other.initialize(5);
  const Tensor head = Tensor::from(other.state().at("head.weight").values(), {9, 6});
  const WeightsReport report = load_weights(other, kGolden + "weights-f32.safetensors", {.partial = true});
  EXPECT_EQ(2u, report.mismatched.size());
  EXPECT_EQ(whole.state().at("fc.weight").values(), other.state().at("fc.weight").values());
  EXPECT_EQ(head.values(), other.state().at("head.weight").values());
}

// 1 + 2⁻¹¹ rounds down to even in f16, and stays in f64; 3 + 2⁻²³ rounds in f32.
TEST(WeightsOfAnotherFloatingType, AreConverted) {
  struct Net : Module {
    Linear fc{*this, "fc", {.in = 2, .out = 2, .bias = false}};
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  TemporaryDirectory directory;
  const std::string file = directory.file("w.safetensors");
  const auto loaded = [&](DType stored, DType wanted, const std::vector<double>& values) {
    const StateDict tensors{{"fc.weight", Tensor::from(values, {2, 2}, stored)}};
    replace_durably(Files::system(), file, [&](const Sink& sink) { write_safetensors(tensors, sink); });
    const DtypeScope dtype(wanted);
    Net net;
    load_weights(net, file);
    EXPECT_EQ(wanted, net.state().at("fc.weight").dtype());
    return net.state().at("fc.weight").values();
  };
  const double small = 1 + 0x1p-11, fine = 3 + 0x1p-23;
  const std::vector<double> values{small, fine, -0.5, 1024};
  EXPECT_EQ((std::vector<double>{1, 3, -0.5, 1024}), loaded(DType::f16, DType::f32, values));
  EXPECT_EQ((std::vector<double>{1, 3, -0.5, 1024}), loaded(DType::bf16, DType::f64, values));
  EXPECT_EQ((std::vector<double>{small, 3, -0.5, 1024}), loaded(DType::f64, DType::f32, values));
  EXPECT_EQ((std::vector<double>{1, 3, -0.5, 1024}), loaded(DType::f32, DType::bf16, values));
  EXPECT_THROW(loaded(DType::i32, DType::f32, {1, 2, 3, 4}), Error);
}

TEST(LinearLayer, RefusesAnImageOfAnotherSizeThanItsInputs) {
  expect_error(
      [] {
        Linear(*std::make_unique<Flattened>(), "x", {.in = 20, .out = 6, .image = {2, 2, 6}});
      },
      {"'x' has 20 inputs", "[2, 2, 6]"});
}

}  // namespace
}  // namespace tandem::nn
