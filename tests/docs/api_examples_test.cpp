// Runs the examples of docs/api.md. This file contains them word for word, apart from their surroundings.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>

#include <gtest/gtest.h>

#include <tandem/datasets/cifar_writer.h>
#include <tandem/engine.h>
#include <tandem/ops/apply.h>

#include "class_dataset.h"
#include "seed.h"
#include "temporary_directory.h"

namespace tandem::testing {
using namespace engine;
namespace {

namespace fs = std::filesystem;

std::string trimmed(const std::string& line) {
  const auto first = line.find_first_not_of(' ');
  return first == std::string::npos ? "" : line.substr(first);
}

std::vector<std::string> lines(const std::string& file) {
  std::ifstream in(std::string(TANDEM_SOURCE) + "/" + file);
  std::vector<std::string> result;
  for (std::string line; std::getline(in, line);) result.push_back(trimmed(line));
  return result;
}

TEST(ApiExamples, MatchTheDocumentation) {
  const auto documentation = lines("docs/api.md"), here = lines("tests/docs/api_examples_test.cpp");
  int examples = 0;
  for (auto begin = documentation.begin();
       (begin = std::find(begin, documentation.end(), "```cpp")) != documentation.end();) {
    const auto end = std::find(++begin, documentation.end(), "```");
    EXPECT_NE(here.end(), std::search(here.begin(), here.end(), begin, end))
        << "this example is missing or different: " << *begin;
    ++examples;
    begin = end;
  }
  EXPECT_EQ(15, examples);
}

// Each test has its own directory, a network, and a dataset.
class ApiExample : public ::testing::Test {
 protected:
  ApiExample() {
    nn::set_default_dtype(DType::f32);
    fs::current_path(directory_.path());
    net.initialize(run_seed());
  }
  void TearDown() override { fs::current_path(before_); }

  struct Net : nn::Module {
    nn::Linear hidden{*this, "hidden", {.in = 4, .out = 16}}, head{*this, "head", {.in = 16, .out = 3}};
    Tensor forward(const Tensor& x) override { return head(relu(hidden(x))); }
  } net;
  std::shared_ptr<ClassDataset> samples = std::make_shared<ClassDataset>(60, run_seed());

 private:
  TemporaryDirectory directory_;
  const fs::path before_ = fs::current_path();
};

// clang-format off
TEST_F(ApiExample, ResumedRun) {
  std::vector<std::int64_t> from, to;
  for (const int run : {0, 1}) {
    Trainer trainer(net, samples, {.batch_size = 6, .epochs = run + 1, .lr = {0.1}, .checkpoint_every = 4});
    trainer.add({.begin = [&] { from.push_back(trainer.progress().batch); }});
    CheckpointWriter writer(CheckpointStore("checkpoints"), [](std::int64_t batch, const std::string& why) {
      std::cerr << "the checkpoint after batch " << batch << " failed, training goes on: " << why << "\n";
    });
    trainer.add({.before_checkpoint = [&] { writer.wait(); },  // one copy of the state at a time
                 .checkpoint = [&](const CheckpointResult& c) {
                   writer.save(c.progress.batch, checkpoint_files(net, c));  // meanwhile training goes on
                 }});
    std::vector<std::string> damaged;  // those passed over, and why
    if (const auto newest = newest_checkpoint("checkpoints", damaged)) trainer.load(*newest);
    trainer.fit();
    to.push_back(trainer.progress().batch);
    EXPECT_TRUE(damaged.empty());
  }
  EXPECT_EQ((std::vector<std::int64_t>{0, 10}), from);
  EXPECT_EQ((std::vector<std::int64_t>{10, 20}), to);
}

TEST_F(ApiExample, AModelAnOptimizerAStep) {
  const Tensor x = init::normal({DType::f32, {12, 4}}, 0, 1, "x", run_seed());
  const Tensor y = Tensor::from({0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, {12}, DType::i32);
  struct Net : nn::Module {
    nn::Linear hidden{*this, "hidden", {.in = 4, .out = 16}}, head{*this, "head", {.in = 16, .out = 3}};
    Tensor forward(const Tensor& x) override { return head(relu(hidden(x))); }
  };

  Net net;
  net.initialize(/*seed=*/1);
  TrainStep step(net, AdamOptions{}, [&](const Tensor& in, const Tensor& label) {
    return cross_entropy(net(in), label);
  });
  for (int batch = 0; batch < 100; ++batch) {
    const double loss = step({x, y}, /*lr=*/0.01);
    if (batch % 10 == 0) std::cout << batch << ": " << loss << "\n";
  }
  const NoGrad no_grad;
  std::cout << softmax(net(x))[0] << "\n";  // the classes of the first sample
  EXPECT_LT(cross_entropy(net(x), y).item(), 1);
}

TEST_F(ApiExample, TwoStepsInTurns) {
  const Tensor real = init::normal({DType::f32, {16, 4}}, 0, 1, "real", run_seed());
  const Tensor noise = init::normal({DType::f32, {16, 8}}, 0, 1, "noise", run_seed());
  struct Gan : nn::ModuleBase {  // has no forward of its own
    nn::Sequential generator{*this, "generator"}, critic{*this, "critic"};
    Gan() {
      generator.add<nn::Linear>({.in = 8, .out = 32});
      generator.add(relu);
      generator.add<nn::Linear>({.in = 32, .out = 4});
      critic.add<nn::Linear>({.in = 4, .out = 32});
      critic.add(relu);
      critic.add<nn::Linear>({.in = 32, .out = 1});
    }
  } gan;
  gan.initialize(/*seed=*/1);
  const auto all = [](const Tensor& logits, double target) {
    return bce_with_logits(logits, Tensor::full(logits.type(), target));
  };
  TrainStep critic(gan.critic, AdamOptions{.beta1 = 0.5}, [&](const Tensor& data, const Tensor& z) {
    return all(gan.critic(data), 1) + all(gan.critic(detach(gan.generator(z))), 0);
  });
  TrainStep generator(gan.generator, AdamOptions{.beta1 = 0.5}, [&](const Tensor& z) {
    return all(gan.critic(gan.generator(z)), 1);  // trains the generator; the critic stays as it is
  });
  for (int batch = 0; batch < 20; ++batch) {
    critic({real, noise}, /*lr=*/0.001);
    generator({noise}, /*lr=*/0.001);
  }
  const StateDict before = gan.generator.state();
  for (int batch = 0; batch < 100; ++batch) critic({real, noise}, /*lr=*/0.01);
  EXPECT_EQ(before.at("0.weight").values(), gan.generator.state().at("0.weight").values());
  EXPECT_LT(critic({real, noise}, 0), 2 * std::log(2.0)) << "the loss of a guess";
}

TEST_F(ApiExample, Teacher) {
  const Tensor x = init::normal({DType::f32, {12, 4}}, 0, 1, "x", run_seed());
  const Tensor y = Tensor::from({0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, {12}, DType::i32);
  struct Pair : nn::ModuleBase {
    nn::Linear student{*this, "student", {.in = 4, .out = 3}}, teacher{*this, "teacher", {.in = 4, .out = 3}};
  } pair;
  pair.initialize(/*seed=*/1);
  TrainStep step(pair.student, SgdOptions{}, [&](const Tensor& in, const Tensor& label) {
    const Tensor target = detach(softmax(pair.teacher(in)));
    return cross_entropy(pair.student(in), label) + mse_loss(softmax(pair.student(in)), target);
  });
  const auto from = pair.student.named_parameters(), to = pair.teacher.named_parameters();
  for (int batch = 0; batch < 20; ++batch) {
    step({x, y}, /*lr=*/0.1);
    const NoGrad no_grad;
    for (std::size_t i = 0; i < to.size(); ++i)
      assign(to[i].second->tensor, 0.9 * to[i].second->tensor + 0.1 * from[i].second->tensor);
  }
  Pair begun;
  begun.initialize(1);
  const auto distance = [&](const Tensor& from) { return l2_norm(from - pair.student.weight, {0, 1}).item(); };
  EXPECT_GT(distance(begun.teacher.weight), distance(pair.teacher.weight));
  EXPECT_LT(0, distance(pair.teacher.weight));
}

TEST_F(ApiExample, GradientOfAGradient) {
  const Tensor x = Tensor::from({1, 2, 3, 4}, {4}).requires_grad();
  const Tensor slope = gradient(sum(x * x * x), {x})[0];  // 3x²
  const Tensor second = gradient(sum(slope), {x})[0];     // 6x
  EXPECT_EQ((std::vector<double>{6, 12, 18, 24}), second.values());
}

TEST_F(ApiExample, GradientPenalty) {
  struct Gan : nn::ModuleBase {
    nn::Linear generator{*this, "generator", {.in = 8, .out = 4}}, critic{*this, "critic", {.in = 4, .out = 1}};
  } gan;
  gan.initialize(/*seed=*/1);
  TrainStep critic(gan.critic, AdamOptions{.beta1 = 0}, [&](const Tensor& data, const Tensor& z) {
    const Tensor made = detach(gan.generator(z));
    const Tensor share = uniform({data.dtype(), {data.size(0), 1}}, nn::current_seed());  // one per sample
    const Tensor between = share * data + (1 - share) * made;
    const Tensor slope = gradient(sum(gan.critic(between)), {between})[0];
    const Tensor norm = sqrt(sum(slope * slope, 1) + 1e-12);
    return mean(gan.critic(made)) - mean(gan.critic(data)) + 10 * mean((norm - 1) * (norm - 1));
  });
  const Tensor real = init::normal({DType::f32, {12, 4}}, 2, 1, "real", run_seed());
  const Tensor noise = init::normal({DType::f32, {12, 8}}, 0, 1, "noise", run_seed());
  for (int batch = 0; batch < 1000; ++batch) critic({real, noise}, /*lr=*/0.01);
  // A linear critic c·x + b minimizes 10(|c| − 1)² − c·(mean of data − mean of made).
  const Tensor apart = mean(real, 0) - mean(gan.generator(noise), 0);
  EXPECT_NEAR(1 + l2_norm(apart, 0).item() / 20, l2_norm(gan.critic.weight, {0, 1}).item(), 0.01);
}

TEST_F(ApiExample, ModelArray) {
  const DatasetPtr train_set = samples;
  std::vector<std::pair<std::unique_ptr<Net>, double>> candidates;
  for (const double momentum : {0.0, 0.9}) candidates.emplace_back(std::make_unique<Net>(), momentum);
  for (auto& [net, momentum] : candidates) net->initialize(run_seed());
  ModelArray models;
  for (auto& [net, momentum] : candidates)
    models.push_back({.module = net.get(), .options = {SgdOptions{.momentum = momentum}}, .lr = 0.05});
  Trainer(models, train_set, {.batch_size = 20, .epochs = 2, .on_non_finite = OnNonFinite::mask}).fit();
  EXPECT_NE(candidates[0].first->state().at("head.weight").values(),
            candidates[1].first->state().at("head.weight").values());
}

TEST_F(ApiExample, OptionsInOrder) {
  const DatasetPtr test_set = samples;
  TrainerOptions options{
      .strategy = {.models = 1,
                   .replicas = 2,
                   .microbatches = 2,
                   .stages = 1,
                   .schedule = "plain",
                   .amp = DType::bf16,
                   .gradients = {.clip_value = 10, .clip_norm = 1, .skip_non_finite = true},
                   .optimizer = AdamOptions{.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.01, .decoupled = true},
                   .parameter_groups = {{.parameters = {"*.bias"}, .lr_scale = 2, .weight_decay = 0.0}},
                   .threads = 1},
      .batch_size = 20,
      .epochs = 2,
      .lr = {0.01},
      .lr_schedule = [](RunLength run, double) { return cosine_lr(run.total); },
      .seeds = {7},
      .objective = classification(/*label_smoothing=*/0.1),
      .test = test_set,
      .patience = 5,
      .drop_last = true,
      .workers = 1};
  Trainer trainer(net, samples, std::move(options));
  EXPECT_EQ(2, trainer.fit().epoch + 1);
}

TEST_F(ApiExample, HandWrittenLoop) {
  const Tensor images = init::normal({DType::f32, {12, 4}}, 0, 1, "images", run_seed());
  const Tensor labels = Tensor::from({0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, {12}, DType::i32);
  const auto loss = [&] {
    const NoGrad no_grad;
    return cross_entropy(net(images), labels).item();
  };
  const double before = loss();
  for (std::int64_t batch = 0; batch < 100; ++batch) {
    const EagerBatch number(batch);  // what dropout draws belongs to this batch; nn::set_seed(s) before, for another seed
    cross_entropy(net(images), labels).backward();
    const NoGrad no_grad;
    for (auto& [path, p] : net.named_parameters()) {
      if (!p->tensor.needs_grad()) continue;
      assign(p->tensor, p->tensor - 0.1 * p->tensor.grad());
      p->tensor.set_grad({});  // or the next backward adds to it
    }
  }
  EXPECT_LT(loss(), before);
}

class Cube final : public Op {  // x³
 public:
  std::string_view name() const override { return "cube"; }
  Types infer(std::span<const TensorType> in) const override { return {in[0]}; }  // throws Error on what does not fit
  Tensors vjp(const VjpArgs& a) const override { return {3 * a.inputs[0] * a.inputs[0] * a.grads[0]}; }
  Tensors vmap(const VmapArgs& a) const override { return map_over_models(*this, a); }
  Work cost(std::span<const TensorType> in, std::span<const TensorType> out) const override { return streaming_work(in, out, 2); }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {{0, 0, Alias::in_place}}; }
};
Tensor cube(const Tensor& x) { return apply_op1(std::make_shared<Cube>(), {x}); }

KernelPtr make_cube(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;  // bf16 comes through f32, f64 is refused
  return make_kernel([n = spec.inputs[0].elements()](const Launch& l) {
    const auto* x = static_cast<const float*>(l.in[0]);
    for (std::int64_t i = 0; i < n; ++i) static_cast<float*>(l.out[0])[i] = x[i] * x[i] * x[i];
  });
}

TEST_F(ApiExample, YourOwnOp) {  // more of it: own_op_test.cpp
  KernelTable kernels("own", &cpu_kernels());
  kernels.add("cube", make_cube);
  const EagerKernels scope(kernels);
  EXPECT_EQ((std::vector<double>{1, -8, 27}), cube(Tensor::from({1, -2, 3}, {3})).values());
}

TEST_F(ApiExample, DataFromYourOwnHost) {
  write_cifar10("data/drawn", 300, 10);
  const std::uint64_t seed = run_seed();
  const auto images = std::make_shared<MemoryDataset>(CifarDataset("data/drawn", CifarSplit::train));  // datasets/cifar.h
  const DatasetPtr train = std::make_shared<ShuffledDataset>(
      mapped(images, {std::make_shared<RandomCrop>(seed), std::make_shared<RandomFlip>(seed),
                      std::make_shared<Normalize>(kCifarMean, kCifarStd)}),
      seed);
  Loader loader(train, {.batch_size = 128, .workers = 1});
  loader.start(/*first batch=*/0);  // any batch of any epoch: a run that goes on sees what it would have seen

  struct CifarHost : Host {
    CifarHost(Loader& loader, int microbatches) : loader(loader), microbatches(microbatches) {}
    void fill(const HostInput& in) override {
      const Rows rows = share_of(loader.rows(in.batch), in.rank.replica, in.rank.replicas, in.microbatch, microbatches);
      if (in.name == "images")
        loader.data(in.batch, rows, in.bytes);
      else if (in.name == "labels")
        loader.labels(in.batch, rows, in.as<std::int32_t>());
      else if (in.name == kLearningRateInput)  // in training
        in.fill(0.1);
    }
    void deliver(const HostResult&) override {}
    Loader& loader;
    const int microbatches;
  };

  CifarHost host(loader, 2);
  const RankContext rank;
  Tensor row = Tensor::full({DType::f32, {64, 32, 32, 3}}, -100), labels = Tensor::full({DType::i32, {64}}, -1);
  host.fill({"images", row.type(), 1, 1, rank, row.bytes()});
  host.fill({"labels", labels.type(), 1, 1, rank, labels.bytes()});
  EXPECT_EQ(0, std::ranges::count(row.values(), -100));
  EXPECT_EQ(0, std::ranges::count(labels.values(), -1));
}

struct Blocks : nn::Module {
  Blocks(nn::ModuleBase& parent, const std::string& name, int count, std::int64_t width) : Module(parent, name) {
    for (int i = 0; i < count; ++i) layers.add({.in = width, .out = width});  // layers.0.weight, …
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (nn::Linear& layer : layers) y = relu(layer(y));
    return y;
  }
  nn::ModuleList<nn::Linear> layers{*this, "layers"};
};

struct Scale : nn::Module {
  Scale(nn::ModuleBase& parent, const std::string& name, std::int64_t channels)
      : Module(parent, name), factor(add_parameter("factor", Tensor::full({nn::default_dtype(), {channels}}, 1))) {}
  Tensor forward(const Tensor& x) override { return x * factor; }  // (…, channels)
  Tensor factor;
};
struct Recommender : nn::ModuleOf<Tensor(const Tensor& ids, const Tensor& features)> {
  Tensor forward(const Tensor& ids, const Tensor& features) override {  // (n, k), (n, 8) -> (n, 3)
    return head(concat({encode(ids), features}, 1));
  }
  Tensor encode(const Tensor& ids) {
    const auto scope = enter("encode");  // the ops below have this path
    return mean(words(ids), {1});
  }
  nn::Embedding words{*this, "words", {.count = 100, .features = 16}};
  nn::Linear head{*this, "head", {.in = 24, .out = 3}};
};
// clang-format on

TEST_F(ApiExample, AModuleOfTwoInputs) {
  Recommender model;
  model.initialize(run_seed());
  const Tensor ids = Tensor::from({1, 2, 3, 4}, {2, 2}, DType::i32),
               features = Tensor::zeros({DType::f32, {2, 8}});
  EXPECT_EQ((Shape{2, 3}), model(ids, features).shape());
  const std::string table =
      nn::summary([&](const Tensors& in) { return model(in[0], in[1]); }, {ids.type(), features.type()});
  for (const char* part : {"encode", "words", "head"}) EXPECT_NE(table.find(part), table.npos) << table;
}

TEST_F(ApiExample, LayersInAContainer) {
  struct Root : nn::Module {
    Blocks blocks{*this, "blocks", 2, 4};
    Tensor forward(const Tensor& x) override { return blocks(x); }
  } root;
  root.initialize(run_seed());
  EXPECT_TRUE(root.state().contains("blocks.layers.1.weight"));
  EXPECT_EQ((Shape{1, 4}), root(Tensor::from({1, 2, 3, 4}, {1, 4})).shape());
}

TEST_F(ApiExample, YourOwnLayer) {
  struct Root : nn::Module {
    Scale scale{*this, "scale", 3};
    Tensor forward(const Tensor& x) override { return scale(x); }
  } root;
  root.initialize(run_seed());
  const auto factors = root(Tensor::from({1, 1, 1}, {1, 3})).values();
  EXPECT_EQ(factors, root.state().at("scale.factor").values());
  for (const double f : factors) {
    EXPECT_GE(f, 0.9);
    EXPECT_LE(f, 1.1);
  }
}

}  // namespace
}  // namespace tandem::testing
