// `tandem forward` and `tandem convert-weights`, with the small weights of tests/golden/originals, whose
// values golden_originals_test.cpp compares.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tandem/core/base/files.h>
#include <tandem/nn/models/deep_resnet.h>
#include <tandem/nn/models/mobilenet_v3.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/nn/safetensors.h>
#include <tandem/nn/weights.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

#include "cli.h"
#include "pattern.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nn::SafetensorsFile;

const std::string kOriginals = TANDEM_SOURCE "/tests/golden/originals/";

// Numbers from −0.5 to 0.5.
std::vector<double> pixels(int count) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(i * 31 % 23 / 23.0 - 0.5);
  return values;
}

class CliWeights : public Cli {
 protected:
  void write_batch(const std::string& name, const StateDict& tensors) const {
    engine::replace_durably(engine::Files::system(), file(name),
                            [&](const engine::Sink& sink) { nn::write_safetensors(tensors, sink); });
  }
  // A copy of an original's folder, with another value in its config.json.
  std::string changed(const std::string& original, const std::string& key, const json& value) const {
    fs::copy(kOriginals + original, file(original),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    json config = read_json(kOriginals + original + "/config.json");
    config[key] = value;
    write(original + "/config.json", config.dump());
    return file(original);
  }
  std::string forward(const std::string& network, const std::string& weights,
                      const std::string& batch) const {
    return kTandem + fmt::format("forward {} --weights {} --batch {} --output {}", network, weights, batch,
                                 file("out"));
  }
  std::string forward(const std::string& network, const std::string& original) const {
    return forward(network, kOriginals + original, kOriginals + original + "/batch.safetensors");
  }
};

Tensor ids(std::vector<double> values, Shape shape) {
  return Tensor::from(values, std::move(shape), DType::i64);
}

TEST_F(CliWeights, ForwardGivesWhatTheOriginalGives) {
  for (const auto& [network, original] : {std::pair("gpt2", "gpt2"),
                                          {"gpt2", "gpt2-body"},
                                          {"bert_base", "bert"},
                                          {"bert_base", "bert-classifier"},
                                          {"vit_b_16", "vit-huggingface"}}) {
    SCOPED_TRACE(original);
    const Ended e = run(forward(network, original) + " --gradients");
    ASSERT_EQ(0, e.status) << e.err;
    const json golden = read_json(kOriginals + "results.json").at("networks").at(original);
    const SafetensorsFile out(file("out"));
    const double loss = golden.at("losses").at(0);
    EXPECT_NEAR(loss, out.read("loss").item(), 1e-5 * loss);
    ASSERT_TRUE(e.out.starts_with("loss ")) << e.out;
    EXPECT_NEAR(loss, std::stod(e.out.substr(5)), 1e-5 * loss);
    const std::vector<double> logits = out.read("logits").values(), expected = golden.at("logits");
    const std::size_t stride = std::max<std::size_t>(1, logits.size() / 40);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(expected[i], logits[i * stride], 1e-4);
    std::size_t gradients = 0;
    for (const auto& [name, entry] : out.tensors()) {
      if (!name.starts_with("grad.")) continue;
      ++gradients;
      const std::string parameter = name.substr(5);
      const std::string prefix = original == std::string("gpt2-body") ? "transformer." : "";
      ASSERT_TRUE(parameter.starts_with(prefix));
      const double norm =
          golden.at("norms").at(parameter.substr(prefix.size()));  // some are 0 but for rounding
      EXPECT_NEAR(golden.at("products").at(parameter.substr(prefix.size())).get<double>(),
                  product_with_pattern(out.read(name)), 1e-4 * norm + 1e-6)
          << name;
      EXPECT_EQ(entry.type, SafetensorsFile(kOriginals + original + "/model.safetensors")
                                .tensors()
                                .at(parameter.substr(prefix.size()))
                                .type)
          << "in the file's layout";
    }
    EXPECT_EQ(golden.at("norms").size(), gradients);

    ASSERT_TRUE(succeeds(forward(network, original) + " --gradients --dtype f64"));
    const SafetensorsFile exact(file("out"));
    EXPECT_NEAR(loss, exact.read("loss").item(), 1e-8 * loss);
    const std::vector<double> same = exact.read("logits").values();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(expected[i], same[i * stride], 1e-8);
    for (const auto& [name, entry] : exact.tensors()) {
      EXPECT_EQ(DType::f64, entry.type.dtype) << name;
      if (!name.starts_with("grad.")) continue;
      const std::string parameter = name.substr(original == std::string("gpt2-body") ? 5 + 12 : 5);
      EXPECT_NEAR(golden.at("products").at(parameter).get<double>(), product_with_pattern(exact.read(name)),
                  1e-8 * golden.at("norms").at(parameter).get<double>() + 1e-14)
          << name;
    }
  }
}

TEST_F(CliWeights, ForwardGivesWhatTheNetworkGivesInProcess) {
  const Tensor images = Tensor::from(pixels(2 * 64 * 64 * 3), {2, 64, 64, 3}, DType::f32),
               dense = Tensor::from(pixels(2 * 13), {2, 13}, DType::f32);
  std::vector<double> rows;
  for (int i = 0; i < 2 * 26; ++i) rows.push_back(i % 3);
  const auto expect_same = [&](const std::string& name, const Tensors& in, const StateDict& batch) {
    SCOPED_TRACE(name);
    const nn::WholeNetwork network = nn::make_network(name, nn::purpose_of(name), 2);
    network.module->initialize(1);
    network.module->eval();
    nn::save_weights(*network.module, file("weights"));
    write_batch("batch", batch);
    ASSERT_TRUE(succeeds(forward(name, file("weights"), file("batch"))));
    const std::vector<double> expected = network.forward(in).at(0).values(),
                              given = SafetensorsFile(file("out")).read("logits").values();
    ASSERT_EQ(expected.size(), given.size());
    for (std::size_t i = 0; i < given.size(); ++i) EXPECT_NEAR(expected[i], given[i], 1e-5) << i;
  };
  expect_same("resnet18", {images}, {{"images", transpose(images, {0, 3, 1, 2})}});
  expect_same("dlrm", {dense, Tensor::from(rows, {2, 26, 1}, DType::i32)},
              {{"dense", dense}, {"categories", ids(rows, {2, 26})}});
}

TEST_F(CliWeights, ConvertedWeightsComeBackBitForBit) {
  for (const auto& [network, original, names] : {std::tuple("gpt2", "gpt2", "huggingface"),
                                                 {"bert_base", "bert", "huggingface"},
                                                 {"vit_b_16", "vit-huggingface", "huggingface"},
                                                 {"vit_b_16", "vit-huggingface", "timm"},
                                                 {"vit_b_16", "vit-huggingface", "torchvision"}}) {
    SCOPED_TRACE(fmt::format("{} {}", original, names));
    const fs::path there = file("there");
    fs::create_directories(there);
    fs::copy_file(kOriginals + original + "/config.json", there / "config.json",
                  fs::copy_options::overwrite_existing);
    const std::string convert = kTandem + "convert-weights " + network + " ";
    Ended e = run(convert + kOriginals + original + " " + (there / "model.safetensors").string() +
                  " --names " + names);
    ASSERT_EQ(0, e.status) << e.err;
    e = run(convert + there.string() + " " + file("back") + " --names huggingface");
    ASSERT_EQ(0, e.status) << e.err;
    const SafetensorsFile before(kOriginals + original + "/model.safetensors"), after(file("back"));
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const auto& [name, entry] : before.tensors())
      EXPECT_EQ(before.read(name).values(), after.read(name).values());
  }
}

TEST_F(CliWeights, OldFilesOfBertAndGpt2AreRead) {
  StateDict bert = SafetensorsFile(kOriginals + "bert/model.safetensors").read_all(), old;
  for (const auto& [name, tensor] : bert) {
    std::string was = name;
    if (was.ends_with("LayerNorm.weight")) was.replace(was.size() - 6, 6, "gamma");
    if (was.ends_with("LayerNorm.bias")) was.replace(was.size() - 4, 4, "beta");
    old[was] = tensor;
  }
  old["bert.embeddings.position_ids"] = ids({0, 1, 2}, {1, 3});
  old["cls.predictions.decoder.weight"] = bert.at("bert.embeddings.word_embeddings.weight");
  fs::create_directories(file("old"));
  fs::copy_file(kOriginals + "bert/config.json", file("old/config.json"));
  write_batch("old/model.safetensors", old);
  EXPECT_TRUE(succeeds(forward("bert_base", file("old"), kOriginals + "bert/batch.safetensors")));
  // A head of its own would be lost.
  old["cls.predictions.decoder.weight"] = bert.at("bert.embeddings.word_embeddings.weight") + 1;
  write_batch("old/model.safetensors", old);
  expect_refused(
      forward("bert_base", file("old"), kOriginals + "bert/batch.safetensors"),
      {"cls.predictions.decoder.weight", "differs from", "word_embeddings", "one parameter for both"});
  old["bert.cls.predictions.decoder.weight"] = old.at("cls.predictions.decoder.weight");
  old.erase("cls.predictions.decoder.weight");
  write_batch("old/model.safetensors", old);
  expect_refused(forward("bert_base", file("old"), kOriginals + "bert/batch.safetensors"),
                 {"'bert.cls.predictions.decoder.weight', f32[50, 24], differs from"});

  StateDict gpt2 = SafetensorsFile(kOriginals + "gpt2/model.safetensors").read_all();
  gpt2["transformer.h.0.attn.bias"] = Tensor::zeros({DType::f32, {1, 1, 12, 12}});
  gpt2["transformer.h.1.attn.masked_bias"] = Tensor::zeros({DType::f32, {}});
  gpt2["lm_head.weight"] = gpt2.at("transformer.wte.weight");
  fs::copy_file(kOriginals + "gpt2/config.json", file("old/config.json"),
                fs::copy_options::overwrite_existing);
  write_batch("old/model.safetensors", gpt2);
  EXPECT_TRUE(succeeds(forward("gpt2", file("old"), kOriginals + "gpt2/batch.safetensors")));
}

TEST_F(CliWeights, WeightsOfAnotherNetworkAreRefusedAndNamed) {
  nn::MobileNetV3 net;
  net.initialize(1);
  nn::save_weights(net, file("weights"));
  write_batch("batch", {{"images", Tensor::zeros({DType::f32, {1, 3, 64, 64}})}});
  expect_refused(forward("resnet18", file("weights"), file("batch")),
                 {"does not fit the model", "missing: conv1.weight", "unexpected: features.0.0.weight",
                  "fits this network better: mobilenet_v3_large --for imagenet"});
  // All but two of its tensors fit resnet101, too, which has more.
  nn::DeepResNet tuned({.depth = 50, .classes = 5});
  tuned.initialize(1);
  nn::save_weights(tuned, file("tuned"));
  const Ended other_head = run(forward("resnet50", file("tuned"), file("batch")));
  EXPECT_EQ(1, other_head.status);
  EXPECT_EQ(std::string::npos, other_head.err.find("fits this network better")) << other_head.err;
  expect_refused(forward("resnet18", kOriginals + "dlrm/model.safetensors", file("batch")),
                 {"(0 of its 102 tensors do)", "unexpected: bottom.0.bias",
                  "has the names of this network, in other sizes: dlrm --for clicks"});
  for (const auto& [network, original, likeliest] :
       {std::tuple("bert_base", "gpt2-body", "gpt2 --for text"), {"gpt2", "bert", "bert_base --for text"}})
    expect_refused(forward(network, kOriginals + original + "/model.safetensors", file("batch")),
                   {"has the names of this network, in other sizes: " + std::string(likeliest)});
  const Ended other_sizes = run(forward("gpt2", kOriginals + "gpt2/model.safetensors", file("batch")));
  EXPECT_EQ(1, other_sizes.status);
  EXPECT_EQ(std::string::npos, other_sizes.err.find("in other sizes:")) << other_sizes.err;
  EXPECT_NE(std::string::npos,
            other_sizes.err.find("the file has the names of this network: give its directory"));
  expect_refused(kTandem + "convert-weights mobilenet_v3_large " + file("weights") + " " + file("other") +
                     " --names timm",
                 {"'timm'", "torchvision"});
}

TEST_F(CliWeights, AConfigThatContradictsTheWeightsIsNamed) {
  const auto refused = [&](const std::string& network, const std::string& original, const std::string& key,
                           const json& value, const std::vector<std::string>& words) {
    SCOPED_TRACE(key);
    expect_refused(
        forward(network, changed(original, key, value), kOriginals + original + "/batch.safetensors"), words);
  };
  for (const auto& [network, original] :
       {std::pair("bert_base", "bert-classifier"), {"vit_b_16", "vit-huggingface"}}) {
    refused(network, original, "num_labels", 1, {"1 label", "regression"});
    refused(network, original, "problem_type", "multi_label_classification", {"problem_type"});
  }
  refused("gpt2", "gpt2", "n_layer", 3, {"missing: transformer.h.2.attn", "config.json"});
  refused("gpt2", "gpt2", "n_embd", 48,
          {"mismatched: transformer.h.0.attn.c_attn.bias: f32[72], the model's f32[144]", "more"});
  refused("gpt2", "gpt2", "n_head", 5, {"config.json", "a GPT-2's 5 heads do not divide its width of 24"});
  refused("gpt2", "gpt2", "n_embd", 1 << 23,
          {"config.json", "a GPT-2 of 2 blocks that are 8388608 wide", "memory"});
  refused("gpt2", "gpt2", "n_inner", 40, {"n_inner", "40", "96"});
  refused("gpt2", "gpt2", "num_attention_heads", 3, {"n_head", "num_attention_heads"});
  refused("gpt2", "gpt2", "scale_attn_by_inverse_layer_idx", true, {"scale_attn_by_inverse_layer_idx"});
  refused("bert_base", "bert", "is_decoder", true, {"is_decoder"});
  refused("gpt2", "gpt2", "n_layer", "two", {"config.json", "n_layer"});
  refused("gpt2", "gpt2", "model_type", "bert", {"config.json", "model_type", "gpt2"});
  refused("gpt2", "gpt2", "layer_norm_epsilon", 1e-3, {"layer_norm_epsilon", "1e-05"});
  refused("vit_b_16", "vit-huggingface", "patch_size", 5, {"patch"});
  expect_refused(forward("dlrm", changed("gpt2", "n_layer", 2), kOriginals + "dlrm/batch.safetensors"),
                 {"no sizes of dlrm can be read from a config.json"});
}

// A config gives all sizes, so the two ViTs are one; sizes that it lacks are the network's own.
TEST_F(CliWeights, AConfigGivesTheSizesOfTheSmallVitToo) {
  ASSERT_TRUE(succeeds(forward("vit_b_16", "vit-huggingface")));
  const std::vector<double> expected = SafetensorsFile(file("out")).read("logits").values();
  ASSERT_TRUE(succeeds(forward("vit_60m", "vit-huggingface")));
  EXPECT_EQ(expected, SafetensorsFile(file("out")).read("logits").values());
  fs::copy(kOriginals + "vit-huggingface", file("vit"));
  json config = read_json(kOriginals + "vit-huggingface/config.json");
  for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads"}) config.erase(key);
  write("vit/config.json", config.dump());
  const std::string batch = kOriginals + "vit-huggingface/batch.safetensors";
  expect_refused(forward("vit_60m", file("vit"), batch),
                 {"classifier.weight: f32[7, 24], the model's f32[7, 640]"});
  expect_refused(forward("vit_b_16", file("vit"), batch),
                 {"classifier.weight: f32[7, 24], the model's f32[7, 768]"});
}

// As the folders of timm have one.
TEST_F(CliWeights, AConfigThatIsNotOfTransformersIsNotRead) {
  const json config{{"architecture", "mobilenetv3_large_100"}, {"num_classes", 1000}};
  nn::MobileNetV3 net;
  net.initialize(1);
  fs::create_directories(file("mobilenet"));
  nn::save_weights(net, file("mobilenet/model.safetensors"));
  write("mobilenet/config.json", config.dump());
  write_batch("batch", {{"images", Tensor::zeros({DType::f32, {1, 3, 64, 64}})}});
  EXPECT_TRUE(succeeds(forward("mobilenet_v3_large", file("mobilenet"), file("batch"))));
  fs::copy(kOriginals + "vit-timm", file("vit"));
  write("vit/config.json", config.dump());
  expect_refused(forward("vit_b_16", file("vit"), file("batch")),
                 {"the model's f32[768]", "The sizes are the paper's", "config.json' has no \"model_type\""});
}

TEST_F(CliWeights, ABertModelHasNoHead) {
  StateDict body;
  for (const auto& [name, tensor] : SafetensorsFile(kOriginals + "bert/model.safetensors").read_all())
    if (name.starts_with("bert.")) body[name.substr(5)] = tensor;
  const std::string folder = changed("bert", "architectures", json::array({"BertModel"}));
  write_batch("bert/model.safetensors", body);
  expect_refused(forward("bert_base", folder, kOriginals + "bert/batch.safetensors"),
                 {"missing: cls.predictions.bias", "a BertModel, which has no head", "BertForPreTraining"});
}

TEST_F(CliWeights, BatchesThatDoNotFitAreRefused) {
  const auto refused = [&](const StateDict& batch, const std::vector<std::string>& words,
                           const std::string& more = "") {
    write_batch("batch", batch);
    expect_refused(forward("gpt2", kOriginals + "gpt2", file("batch")) + more, words);
  };
  const Tensor good = ids({1, 2, 3}, {1, 3});
  refused({{"words", good}}, {"has no 'input_ids'"});
  refused({{"input_ids", good}, {"dense", good}}, {"'dense'", "gpt2 does not take", "input_ids, labels"});
  refused({{"input_ids", Tensor::zeros({DType::f32, {1, 3}})}},
          {"'input_ids' must be integers with 2 axes", "f32[1, 3]"});
  refused({{"input_ids", ids({1, 50, 3}, {1, 3})}},
          {"wte: embedding(", "index 50 of sample 0, position 1, is outside the range 0 to 49"});
  refused({{"input_ids", ids({1, -1, 3}, {1, 3})}}, {"index -1"});
  refused({{"input_ids", Tensor::zeros({DType::i64, {1, 13}})}}, {"at most 12 positions", "[1, 13]"});
  refused({{"input_ids", good}, {"labels", ids({1, 2, 99}, {1, 3})}},
          {"'labels': index 99 of sample 0, position 2, is outside the range 0 to 49"});
  refused({{"input_ids", good}, {"labels", ids({1, 2, 3, 4, 5}, {1, 5})}}, {"[1, 5]", "[1, 3]"});
  refused({{"input_ids", good}, {"labels", ids({1, 2, 3, 4, 5, 6}, {2, 3})}},
          {"'input_ids' has 1 sample, and 'labels' 2"});
  refused({{"input_ids", ids({}, {0, 3})}}, {"'input_ids' is empty", "i64[0, 3]"});
  refused({{"input_ids", good}}, {"--gradients", "'labels'"}, " --gradients");
  expect_refused(forward("gpt2", kOriginals + "gpt2", file("none")), {"none"});
  expect_refused(forward("gpt3", kOriginals + "gpt2", file("batch")), {"'gpt3'", "gpt2"});
  expect_refused(forward("vgg16", kOriginals + "gpt2", file("batch")), {"vgg16", "cifar, imagenet", "--for"});
}

TEST_F(CliWeights, ClicksThatDoNotFitAreRefused) {
  const auto refused = [&](std::int64_t samples, const Tensor& categories,
                           const std::vector<std::string>& words) {
    write_batch("batch", {{"dense", Tensor::zeros({DType::f32, {samples, 13}})}, {"categories", categories}});
    expect_refused(forward("dlrm", file("weights"), file("batch")), words);
  };
  const nn::WholeNetwork network = nn::make_network("dlrm", "clicks", 1);
  network.module->initialize(1);
  nn::save_weights(*network.module, file("weights"));
  std::vector<double> rows(2 * 26);
  rows[26 + 3] = -1;
  refused(2, ids(rows, {2, 26}),
          {"'categories': index -1 of sample 1, position 3, is outside the range 0 to 29999"});
  rows[26 + 3] = 0;
  rows[8] = 3;
  refused(2, ids(rows, {2, 26}),
          {"'categories': index 3 of sample 0, position 8, is outside the range 0 to 2"});
  rows[8] = 0;
  refused(3, ids(rows, {2, 26}), {"'dense' has 3 samples, and 'categories' 2"});
  refused(4, ids(rows, {4, 13}), {"'categories' must be (N,26), not "});
}

TEST_F(CliWeights, IdsOutsideATableOfABertAreRefused) {
  const auto refused = [&](const StateDict& batch, const std::vector<std::string>& words) {
    write_batch("batch", batch);
    expect_refused(forward("bert_base", kOriginals + "bert", file("batch")), words);
  };
  const Tensor good = ids({1, 2, 3}, {1, 3});
  refused({{"input_ids", ids({1, 50, 3}, {1, 3})}},
          {"bert.embeddings.word_embeddings: embedding(", "index 50 of sample 0, position 1", "0 to 49"});
  refused({{"input_ids", good}, {"token_type_ids", ids({0, 0, 2}, {1, 3})}},
          {"bert.embeddings.token_type_embeddings: embedding(", "index 2 of sample 0, position 2", "0 to 1"});
  refused({{"input_ids", good}, {"labels", good}, {"next_sentence_label", ids({2}, {1})}},
          {"'next_sentence_label': index 2 of sample 0 is outside the range 0 to 1"});
  refused({{"input_ids", Tensor::zeros({DType::i64, {1, 13}})}},
          {"bert: ", "at most 12 positions", "[1, 13]"});
}

TEST_F(CliWeights, OnlyRegularFilesThatAreNotReadAreReplaced) {
  const auto forward_to = [&](const std::string& output) {
    return kTandem + "forward gpt2 --weights " + file("gpt2") + " --batch " + file("batch") + " --output " +
           output;
  };
  fs::copy(kOriginals + "gpt2", file("gpt2"));
  fs::copy_file(kOriginals + "gpt2/batch.safetensors", file("batch"));
  ASSERT_EQ(0, mkfifo(file("pipe").c_str(), 0600));
  expect_refused(forward_to(file("pipe")), {"--output", "pipe", "not a regular file"});
  expect_refused(forward_to("/dev/null"), {"/dev/null", "not a regular file"});
  expect_refused(forward_to(file("batch")), {"would replace", "which is read"});
  expect_refused(forward_to(file("gpt2/model.safetensors")), {"would replace", "which is read"});
  write_batch("weights", {});  // which results do not replace
  expect_refused(forward_to(file("weights")), {"--output", "weights", "did not write it as results"});
  fs::create_symlink(file("target"), file("link"));
  expect_refused(forward_to(file("link")), {"--output", "link", "leads nowhere"});
  EXPECT_TRUE(fs::is_symlink(file("link")));
  ASSERT_TRUE(succeeds(forward_to(file("target"))));
  expect_refused(kTandem + "convert-weights gpt2 " + file("gpt2") + " " + file("target"),
                 {"target", "did not write it as weights"});
  ASSERT_TRUE(succeeds(forward_to(file("link"))));
  EXPECT_TRUE(fs::is_symlink(file("link")));
  EXPECT_TRUE(SafetensorsFile(file("target")).tensors().contains("logits"));
}

TEST_F(CliWeights, OtherFilesOfWeightsAreNamed) {
  const std::string batch = kOriginals + "gpt2/batch.safetensors";
  write("net.pth", std::string("PK\x03\x04", 4) + std::string(100, 'x'));
  expect_refused(forward("gpt2", file("net.pth"), batch), {"net.pth", "torch.save", "save_file"});
  fs::create_directories(file("parts"));
  write("parts/pytorch_model.bin", "PK");
  expect_refused(forward("gpt2", file("parts"), batch), {"parts", "no model.safetensors", "max_shard_size"});
  StateDict wide = SafetensorsFile(kOriginals + "gpt2/model.safetensors").read_all();
  for (auto& [name, t] : wide) t = cast(t, DType::f64) + 1e300;
  fs::copy(kOriginals + "gpt2", file("wide"));
  fs::remove(file("wide/model.safetensors"));
  write_batch("wide/model.safetensors", wide);
  expect_refused(kTandem + "convert-weights gpt2 " + file("wide") + " " + file("other"),
                 {"'transformer.h.0.attn.c_attn.bias' has 1e+300, which is too large for f32"});
}

// Tandem's attention gives 0 where there is nothing to see; the original reads the padding.
TEST_F(CliWeights, AMaskThatHidesATextIsRefused) {
  StateDict batch = SafetensorsFile(kOriginals + "bert/batch.safetensors").read_all();
  Tensor mask = Tensor::zeros(batch.at("attention_mask").type());
  std::ranges::fill_n(mask.as<std::int64_t>(), mask.size(1), 1);  // of the first text
  batch["attention_mask"] = mask;
  write_batch("batch", batch);
  expect_refused(forward("bert_base", kOriginals + "bert", file("batch")),
                 {"batch", "'attention_mask' hides all 9 words of sample 1"});
}

}  // namespace
}  // namespace tandem::testing
