// Small networks with the weights that torchvision, timm, transformers, and torch saved compute what these
// compute: tests/golden/originals, written by make_originals.py. Networks of one size are too large for
// files: their weights follow a formula, which the script has, too.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include <tandem/core/base/json_input.h>
#include <tandem/nn/models/bert.h>
#include <tandem/nn/models/dlrm.h>
#include <tandem/nn/models/mobilenet_v3.h>
#include <tandem/nn/models/network_config.h>
#include <tandem/nn/models/residual_lstm_net.h>
#include <tandem/nn/models/transformer.h>
#include <tandem/nn/models/vgg.h>
#include <tandem/nn/models/vit.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/nn/torch_layout.h>
#include <tandem/nn/weights.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

#include "pattern.h"
#include "temporary_directory.h"
#include "test_files.h"

namespace tandem::testing {
namespace {

using engine::JsonInput;
using nlohmann::json;

const std::string kFolder = TANDEM_SOURCE "/tests/golden/originals/";

struct Original {
  std::string library;  // whose names the file has; empty: they are Tandem's
  std::function<nn::WholeNetwork()> make;
  double gain = 0;  // of formulas: the mean weight of a norm; 0: files have weights and batch
};

// Element i of a parameter in PyTorch's layout.
double weight(const std::string& name, const TensorType& type, std::int64_t i, double gain) {
  const double drawn = pattern(i, std::ssize(name));
  if (name.ends_with("running_var")) return 1 + 0.5 * drawn;
  if (type.rank() == 1) return (name.ends_with("weight") ? gain : 0) + 0.1 * drawn;
  return std::sqrt(static_cast<double>(6 * type.shape[0]) / static_cast<double>(type.elements())) * drawn;
}

// In f32, as the script.
void assign_formula(nn::ModuleBase& module, double gain) {
  StateDict state;
  for (const auto& [path, p] : module.named_parameters()) {
    const TensorType type = nn::torch_type(*p);
    std::vector<double> values;
    for (std::int64_t i = 0; i < type.elements(); ++i)
      values.push_back(static_cast<float>(weight(path, type, i, gain)));
    state[path] = nn::from_torch(*p, Tensor::from(values, type.shape, type.dtype));
  }
  module.load(state);
}

// As files have it, with channels before height and width.
StateDict batch_by_formula(std::int64_t side) {
  std::vector<double> pixels;
  for (std::int64_t i = 0; i < 2 * side * side * 3; ++i) pixels.push_back(static_cast<float>(pattern(i, 1)));
  return {{"images", transpose(Tensor::from(pixels, {2, side, side, 3}, DType::f64), {0, 3, 1, 2})},
          {"labels", Tensor::from(std::vector<double>{1, 999}, {2}, DType::i32)}};
}

// Of one input and cross entropy.
nn::WholeNetwork classifier(std::unique_ptr<nn::Module> net, const std::string& input) {
  nn::Module& module = *net;
  return {.module = std::move(net),
          .inputs = {{input, {}}},
          .forward = [&module](const Tensors& in) { return Tensors{module(in[0])}; },
          .outputs = {"logits"},
          .labels = {{"labels", {}}},
          .loss = [](const Tensors& out, const Tensors& labels) { return cross_entropy(out[0], labels[0]); }};
}

nn::WholeNetwork with_config(const std::string& network, const std::string& purpose,
                             const std::string& folder) {
  const std::string file = kFolder + folder + "/config.json";
  return nn::make_network(network, purpose, 2, JsonInput::parse(file, engine::read_text("config", file)));
}

nn::VitOptions vit(std::int64_t hidden) {
  return {.image = 32, .patch = 8, .classes = 7, .width = 24, .hidden = hidden, .depth = 2, .heads = 3};
}

// BertModel, which has no head.
nn::WholeNetwork bert_body() {
  const std::string file = kFolder + "bert-body/config.json";
  const auto config = JsonInput::parse(file, engine::read_text("config", file));
  auto net = std::make_unique<nn::Bert>(nn::bert_options(config));
  nn::Bert& module = *net;
  return {.module = std::move(net),
          .inputs = {{"input_ids", {}}, {"attention_mask", {}}, {"token_type_ids", {}}},
          .forward =
              [&module](const Tensors& in) {
                return Tensors{module(nn::BertInput{in[0], in[1], in[2]}).sample};
              },
          .outputs = {"logits"},
          .labels = {{"labels", {}}},
          .loss = [](const Tensors& out, const Tensors& labels) { return cross_entropy(out[0], labels[0]); }};
}

nn::WholeNetwork dlrm() {
  auto net = std::make_unique<nn::Dlrm>(
      nn::DlrmOptions{.numbers = 4, .rows = {5, 7, 3}, .width = 8, .bottom = {10}, .top = {12}});
  nn::Dlrm& module = *net;
  return {.module = std::move(net),
          .inputs = {{"dense", {}}, {"categories", {}}},
          .forward =
              [&module](const Tensors& in) {
                return Tensors{module(nn::Clicks{in[0], in[1]})};
              },
          .outputs = {"logits"},
          .labels = {{"labels", {}}},
          .loss =
              [](const Tensors& out, const Tensors& labels) {
                return bce_with_logits(reshape(out[0], labels[0].shape()), labels[0]);
              }};
}

std::map<std::string, Original> originals() {
  std::map<std::string, Original> all;
  for (const char* folder : {"gpt2", "gpt2-body"})
    all[folder] = {"huggingface", [=] { return with_config("gpt2", "text", folder); }};
  for (const char* folder : {"bert", "bert-classifier"})
    all[folder] = {"huggingface", [=] { return with_config("bert_base", "text", folder); }};
  all["bert-body"] = {"huggingface", bert_body};
  all["vit-huggingface"] = {"huggingface",
                            [] { return with_config("vit_b_16", "imagenet", "vit-huggingface"); }};
  all["vit-timm"] = {"timm", [] { return classifier(std::make_unique<nn::Vit>(vit(48)), "images"); }};
  all["vit-torchvision"] = {"", [] { return classifier(std::make_unique<nn::Vit>(vit(40)), "images"); }};
  all["transformer"] = {"torch", [] {
                          return classifier(
                              std::make_unique<nn::Transformer>(nn::TransformerOptions{.words = 50,
                                                                                       .positions = 12,
                                                                                       .classes = 3,
                                                                                       .width = 24,
                                                                                       .hidden = 40,
                                                                                       .encoders = 2,
                                                                                       .decoders = 2,
                                                                                       .heads = 3}),
                              "input_ids");
                        }};
  all["residual_lstm"] = {"", [] {
                            return classifier(
                                std::make_unique<nn::ResidualLstmNet>(nn::ResidualLstmNetOptions{
                                    .words = 50, .classes = 3, .width = 12, .cells = 20, .layers = 2}),
                                "input_ids");
                          }};
  all["dlrm"] = {"", dlrm};
  all["mobilenet"] = {"", [] {
                        return classifier(std::make_unique<nn::MobileNetV3>(nn::MobileNetV3Options{
                                              .classes = 7, .width = 0.1, .hidden = 64}),
                                          "images");
                      }};
  all["vgg"] = {"", [] {
                  return classifier(std::make_unique<nn::Vgg16>(
                                        nn::Vgg16Options{.classes = 7, .width = 4, .hidden = 24, .cells = 7}),
                                    "images");
                }};
  for (const char* name : {"resnet18", "resnet50", "mobilenet_v3_large", "xception", "inception_v4"})
    all[name] = {"", [=] { return nn::make_network(name, "imagenet", 2); }};
  all["resnet18"].gain = all["resnet50"].gain = 0.5;
  all["xception"].gain = 0.4;
  all["mobilenet_v3_large"].gain = 0.8;
  all["inception_v4"].gain = 0.9;
  return all;
}

class GoldenFiles : public ::testing::TestWithParam<std::string> {};

class GoldenOriginals : public ::testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  GoldenOriginals() { nn::set_default_dtype(dtype()); }
  ~GoldenOriginals() override { nn::set_default_dtype(DType::f32); }
  static DType dtype() { return std::get<1>(GetParam()); }
};

Tensor batch_tensor(const StateDict& batch, const nn::NetworkInput& input, DType dtype) {
  Tensor t = batch.at(input.name);
  if (input.name == "images") t = transpose(t, {0, 2, 3, 1});
  if (input.name == "attention_mask") return not_equal(t, 0);
  return cast(t, is_floating(t.dtype()) ? dtype : DType::i32);
}

// GPT2Model's names lack a prefix.
std::string name_in_file(const std::string& original, const std::string& name) {
  return original == "gpt2-body" ? name.substr(std::string("transformer.").size()) : name;
}

double norm_of(const Tensor& t) {
  double squares = 0;
  for (const double x : t.values()) squares += x * x;
  return std::sqrt(squares);
}

TEST_P(GoldenOriginals, GiveTheSame) {
  const auto& [name, dtype] = GetParam();
  const double tolerance = dtype == DType::f64 ? 1e-8 : 1e-4;
  const json expected = read_json(kFolder + "results.json").at("networks").at(name);
  const Original original = originals().at(name);
  nn::WholeNetwork network = original.make();
  nn::ModuleBase& module = *network.module;
  StateDict batch;
  if (original.gain != 0) {
    assign_formula(module, original.gain);
    batch = batch_by_formula(expected.at("side"));
  } else {
    const std::string folder = kFolder + name;
    EXPECT_EQ(original.library, nn::load_weights(module, folder + "/model.safetensors").library);
    batch = nn::SafetensorsFile(folder + "/batch.safetensors").read_all();
  }
  module.eval();

  Tensors inputs, labels;
  for (const nn::NetworkInput& i : network.inputs) inputs.push_back(batch_tensor(batch, i, dtype));
  for (const nn::NetworkInput& i : network.labels) labels.push_back(batch_tensor(batch, i, dtype));
  const double rate = expected.at("rate");
  for (std::size_t step = 0; step < 5; ++step) {
    for (const auto& [path, p] : module.named_parameters()) p->tensor.set_grad({});
    const Tensors outputs = network.forward(inputs);
    const Tensor loss = network.loss(outputs, labels);
    EXPECT_NEAR(expected.at("losses").at(step), loss.item(), tolerance * std::abs(loss.item()))
        << "step " << step;
    loss.backward();
    if (step == 0) {
      const std::vector<double> logits = outputs[0].values(), wanted = expected.at("logits");
      const double largest =
          std::abs(*std::ranges::max_element(wanted, {}, [](double x) { return std::abs(x); }));
      const std::size_t stride = std::max<std::size_t>(1, logits.size() / 40);
      ASSERT_EQ((logits.size() + stride - 1) / stride, wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(wanted[i], logits[i * stride], tolerance * largest) << "logit " << i * stride;
      StateDict gradients;
      for (const auto& [path, p] : module.named_parameters())
        if (!p->buffer) gradients[path] = p->tensor.grad();
      double longest = 0;
      for (const double norm : expected.at("norms")) longest = std::max(longest, norm);
      std::size_t compared = 0;
      for (const auto& [key, stored] :
           nn::stored_tensors(module, nn::file_layout(module, original.library))) {
        if (stored.pieces[0].parameter.buffer) continue;
        const Tensor gradient =
            nn::to_file(stored, [&](const std::string& path) { return gradients.at(path); });
        const std::string in_file = name_in_file(name, key);
        const double norm = expected.at("norms").at(in_file);  // some are 0 but for rounding
        const double within = tolerance * std::min(longest, 10 * norm + 0.1 * longest);
        EXPECT_NEAR(norm, norm_of(gradient), within) << key;
        EXPECT_NEAR(expected.at("products").at(in_file), product_with_pattern(gradient), within) << key;
        ++compared;
      }
      EXPECT_EQ(expected.at("norms").size(), compared);
    }
    StateDict state = module.state();
    for (const auto& [path, p] : module.named_parameters())
      if (!p->buffer) state[path] = detach(p->tensor - scale(p->tensor.grad(), rate));
    module.load(state);
  }
}

// Written under their names, the weights are the file again, bit for bit.
TEST_P(GoldenFiles, AreWrittenAgain) {
  const std::string& name = GetParam();
  const Original original = originals().at(name);
  const nn::WholeNetwork network = original.make();
  const std::string file = kFolder + name + "/model.safetensors";
  nn::load_weights(*network.module, file);
  const TemporaryDirectory directory;
  nn::save_weights(*network.module, directory.file("again"), original.library);
  const nn::SafetensorsFile before(file), after(directory.file("again"));
  for (const auto& [key, entry] : after.tensors()) {
    if (key.ends_with("num_batches_tracked")) continue;  // no network here needs it: it begins at 0
    ASSERT_TRUE(before.tensors().contains(name_in_file(name, key))) << key;
    EXPECT_EQ(before.read(name_in_file(name, key)).values(), after.read(key).values()) << key;
  }
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
}

// In the sizes of their papers.
TEST(FilesOfWholeNetworks, HaveTheNamesAndShapesOfTheOriginals) {
  using Shapes = std::map<std::string, Shape>;
  for (const json& file : read_json(TANDEM_SOURCE "/tests/golden/names.json")) {
    const std::string name = file.at("network"), library = file.at("library");
    SCOPED_TRACE(name + " of " + library);
    const nn::WholeNetwork network = nn::make_network(name, file.at("purpose"), 2);
    nn::fill_with_zeros(*network.module);
    const StateDict state = network.module->state();
    Shapes ours, theirs;
    for (const auto& [key, source] :
         nn::torch_sources(*network.module, state, 0, 0, 1, nn::file_layout(*network.module, library)))
      ours[key] = source.type.shape;
    for (const auto& [key, shape] : file.at("shapes").items()) theirs[key] = shape.get<Shape>();
    for (const auto& [key, shape] : theirs)
      EXPECT_EQ(to_string(shape), ours.contains(key) ? to_string(ours[key]) : "missing") << key;
    for (const auto& [key, shape] : ours) EXPECT_TRUE(theirs.contains(key)) << key;
  }
}

std::vector<std::string> names(bool with_files_alone) {
  std::vector<std::string> found;
  for (const auto& [name, original] : originals())
    if (!with_files_alone || original.gain == 0) found.push_back(name);
  return found;
}
std::string as_test_name(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenOriginals,
                         ::testing::Combine(::testing::ValuesIn(names(false)),
                                            ::testing::Values(DType::f32, DType::f64)),
                         [](const auto& info) {
                           return as_test_name(std::get<0>(info.param) + "_" +
                                               std::string(name_of(std::get<1>(info.param))));
                         });
INSTANTIATE_TEST_SUITE_P(All, GoldenFiles, ::testing::ValuesIn(names(true)),
                         [](const auto& info) { return as_test_name(info.param); });

}  // namespace
}  // namespace tandem::testing
