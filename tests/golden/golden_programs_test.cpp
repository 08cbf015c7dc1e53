// Whole small programs have PyTorch's losses and weights, step by step, which tests/golden/make_programs.py
// wrote to tests/golden/programs.json. Weights and data come from formulas that both sides compute.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/tandem.h>

#include "test_files.h"

namespace tandem::testing {
namespace {

using nlohmann::json;

constexpr int kSteps = 20;
constexpr std::int64_t kSamples = 8;
constexpr double kTolerance = 1e-9;

// Parameter k, element j: 0.4·sin(1.7·(k + 1) + 0.9·j). Buffers keep their initial contents.
void fill(nn::ModuleBase& module) {
  int k = 0;
  for (const auto& [path, p] : module.named_parameters()) {
    if (p->buffer) continue;
    auto* x = p->tensor.as<double>();
    for (std::int64_t j = 0; j < p->tensor.elements(); ++j)
      x[j] = 0.4 * std::sin(1.7 * (k + 1) + 0.9 * static_cast<double>(j));
    ++k;
  }
}

// Element i of a stream of a step: sin(0.7·step + 2.3·stream + 1.1·i).
Tensor data(int step, int stream, const Shape& shape) {
  Tensor t = Tensor::empty({DType::f64, shape});
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.as<double>()[i] = std::sin(0.7 * step + 2.3 * stream + 1.1 * static_cast<double>(i));
  return t;
}

// ⌊(x + 1)·factor⌋ as whole numbers.
Tensor whole(const Tensor& x, double factor, DType dtype) {
  std::vector<double> values = x.values();
  for (double& v : values) v = std::floor((v + 1) * factor);
  return Tensor::from(values, x.shape(), dtype);
}

// 1 where x is above `bound`, else 0.
Tensor above(const Tensor& x, double bound, DType dtype) {
  std::vector<double> values = x.values();
  for (double& v : values) v = v > bound ? 1 : 0;
  return Tensor::from(values, x.shape(), dtype);
}

struct MlpOptions {
  std::int64_t in, hidden, out;
};
struct Mlp : nn::Module {
  using Options = MlpOptions;
  Mlp(MlpOptions o) : o_(o) {}
  Mlp(nn::ModuleBase& parent, const std::string& name, MlpOptions o) : Module(parent, name), o_(o) {}
  Tensor forward(const Tensor& x) override { return last(tanh(first(x))); }
  MlpOptions o_;
  nn::Linear first{*this, "first", {.in = o_.in, .out = o_.hidden}},
      last{*this, "last", {.in = o_.hidden, .out = o_.out}};
};

class GoldenPrograms : public ::testing::Test {
 protected:
  static json golden(const std::string& name) {
    const json file = read_json(TANDEM_SOURCE "/tests/golden/programs.json");
    for (const json& p : file["programs"])
      if (p["name"] == name) return p;
    throw Error("there is no program called " + name);
  }
  static void expect_equal(const std::string& name, const std::vector<double>& losses,
                           const std::vector<nn::ModuleBase*>& modules) {
    const json expected = golden(name);
    ASSERT_EQ(expected["losses"].size(), losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(expected["losses"][i].get<double>(), losses[i], kTolerance) << "loss " << i;
    std::size_t k = 0;
    for (nn::ModuleBase* module : modules)
      for (const auto& [path, p] : module->named_parameters()) {
        const auto values = p->tensor.values();
        const auto wanted = expected["weights"].at(k++).get<std::vector<double>>();
        ASSERT_EQ(wanted.size(), values.size()) << path;
        for (std::size_t i = 0; i < values.size(); ++i)
          EXPECT_NEAR(wanted[i], values[i], kTolerance) << path << ", element " << i;
      }
    EXPECT_EQ(expected["weights"].size(), k);
  }

 private:
  const nn::DtypeScope f64_{DType::f64};
};

TEST_F(GoldenPrograms, Siamese) {
  struct Net : nn::Module {
    nn::Linear first{*this, "first", {.in = 4, .out = 8}};
    nn::BatchNorm norm{*this, "norm", {.channels = 8}};
    nn::Linear last{*this, "last", {.in = 8, .out = 3}};
    Tensor forward(const Tensor& x) override { return last(tanh(norm(first(x)))); }
  } net;
  net.initialize(1);
  fill(net);
  TrainStep step(net, SgdOptions{.momentum = 0.9}, [&](const Tensors& b) {
    const Tensor left = net(b[0]), right = net(b[1]);  // one after the other, as their running statistics
    const Tensor difference = left - right, distance = sum(difference * difference, {1});
    const Tensor apart = relu(1.0 - sqrt(distance + 1e-6));
    return mean(b[2] * distance + (1.0 - b[2]) * apart * apart);
  });
  std::vector<double> losses;
  for (int t = 0; t < kSteps; ++t)
    losses.push_back(step({data(t, 0, {kSamples, 4}), data(t, 1, {kSamples, 4}),
                           above(data(t, 2, {kSamples}), 0.0, DType::f64)},
                          0.1));
  expect_equal("siamese", losses, {&net});
}

struct Gan : nn::ModuleBase {
  Mlp generator{*this, "generator", {2, 6, 3}}, critic{*this, "critic", {3, 6, 1}};
  Gan() {
    initialize(1);
    fill(generator);
    fill(critic);
  }
};

TEST_F(GoldenPrograms, GanInTurns) {
  Gan gan;
  const auto all = [](const Tensor& logits, double target) {
    return bce_with_logits(logits, Tensor::full(logits.type(), target));
  };
  TrainStep critic(gan.critic, SgdOptions{.momentum = 0.9}, [&](const Tensors& b) {
    return all(gan.critic(b[0]), 1) + all(gan.critic(detach(gan.generator(b[1]))), 0);
  });
  TrainStep generator(gan.generator, SgdOptions{.momentum = 0.9},
                      [&](const Tensors& b) { return all(gan.critic(gan.generator(b[0])), 1); });
  std::vector<double> losses;
  for (int t = 0; t < kSteps; ++t) {
    const Tensor real = data(t, 0, {kSamples, 3}), z = data(t, 1, {kSamples, 2});
    losses.push_back(critic({real, z}, 0.1));
    losses.push_back(generator({z}, 0.1));
  }
  expect_equal("gan", losses, {&gan.generator, &gan.critic});
}

TEST_F(GoldenPrograms, WassersteinGanWithGradientPenalty) {
  Gan gan;
  const AdamOptions adam{.beta1 = 0.5, .beta2 = 0.9};
  TrainStep critic(gan.critic, adam, [&](const Tensors& b) {
    const Tensor &real = b[0], fake = detach(gan.generator(b[1])), mix = b[2];
    const Tensor between = detach(mix * real + (1.0 - mix) * fake).requires_grad();
    const Tensor slope = gradient(sum(gan.critic(between)), {between})[0];
    const Tensor beyond = sqrt(sum(slope * slope, {1})) - 1.0;
    return mean(gan.critic(fake)) - mean(gan.critic(real)) + 10.0 * mean(beyond * beyond);
  });
  TrainStep generator(gan.generator, adam,
                      [&](const Tensors& b) { return -mean(gan.critic(gan.generator(b[0]))); });
  std::vector<double> losses;
  for (int t = 0; t < kSteps; ++t) {
    const Tensor z = data(t, 1, {kSamples, 2}), mix = data(t, 2, {kSamples, 1});
    losses.push_back(critic({data(t, 0, {kSamples, 3}), z, mix * mix}, 0.01));
    if (t % 2) losses.push_back(generator({z}, 0.01));
  }
  expect_equal("wgan_gp", losses, {&gan.generator, &gan.critic});
}

TEST_F(GoldenPrograms, MeanTeacher) {
  struct Pair : nn::ModuleBase {
    Mlp student{*this, "student", {4, 8, 3}}, teacher{*this, "teacher", {4, 8, 3}};
  } pair;
  pair.initialize(1);
  fill(pair.student);
  fill(pair.teacher);
  TrainStep step(pair.student, AdamOptions{.weight_decay = 0.05, .decoupled = true}, [&](const Tensors& b) {
    const Tensor output = pair.student(b[0]), target = detach(softmax(pair.teacher(b[0] + 0.1 * b[1])));
    return cross_entropy(output, b[2]) + mse_loss(softmax(output), target);
  });
  std::vector<double> losses;
  const auto students = pair.student.named_parameters(), teachers = pair.teacher.named_parameters();
  for (int t = 0; t < kSteps; ++t) {
    losses.push_back(step({data(t, 0, {kSamples, 4}), data(t, 1, {kSamples, 4}),
                           above(data(t, 2, {kSamples}), 0.0, DType::i64)},
                          0.01));
    const NoGrad no_grad;
    for (std::size_t i = 0; i < students.size(); ++i)
      assign(teachers[i].second->tensor, 0.9 * teachers[i].second->tensor + 0.1 * students[i].second->tensor);
  }
  expect_equal("mean_teacher", losses, {&pair.student, &pair.teacher});
}

TEST_F(GoldenPrograms, VariationalAutoencoder) {
  struct Vae : nn::ModuleOf<Tensors(const Tensor& x, const Tensor& noise)> {
    Mlp encoder{*this, "encoder", {4, 8, 4}}, decoder{*this, "decoder", {2, 8, 4}};
    Tensors forward(const Tensor& x, const Tensor& noise) override {
      const Tensors code = split(encoder(x), {2, 2}, 1);
      return {decoder(code[0] + exp(0.5 * code[1]) * noise), code[0], code[1]};
    }
  } net;
  net.initialize(1);
  fill(net);
  TrainStep step(net, AdamOptions{}, [&](const Tensors& b) {
    const Tensors out = net(b[0], b[1]);
    const Tensor divergence = -0.5 * mean(sum(1.0 + out[2] - out[1] * out[1] - exp(out[2]), {1}));
    return mse_loss(out[0], b[0]) + 0.1 * divergence;
  });
  std::vector<double> losses;
  for (int t = 0; t < kSteps; ++t)
    losses.push_back(step({data(t, 0, {kSamples, 4}), data(t, 1, {kSamples, 2})}, 0.01));
  expect_equal("vae", losses, {&net});
}

TEST_F(GoldenPrograms, VectorQuantization) {
  struct Vq : nn::ModuleBase {
    Mlp encoder{*this, "encoder", {4, 8, 2}}, decoder{*this, "decoder", {2, 8, 4}};
    nn::Embedding codes{*this, "codes", {.count = 5, .features = 2}};
  } net;
  net.initialize(1);
  fill(net);
  TrainStep step(net, SgdOptions{}, [&](const Tensors& b) {
    const Tensor z = net.encoder(b[0]), &codes = net.codes.weight;
    const Tensor distance =
        sum(z * z, {1}, true) - 2.0 * matmul(z, codes, {.transpose_b = true}) + sum(codes * codes, {1});
    const Tensor q = net.codes(argmin(distance));
    const Tensor y = net.decoder(z + detach(q - z));
    return mse_loss(y, b[0]) + mse_loss(q, detach(z)) + 0.25 * mse_loss(z, detach(q));
  });
  std::vector<double> losses;
  for (int t = 0; t < kSteps; ++t) losses.push_back(step({data(t, 0, {kSamples, 4})}, 0.1));
  expect_equal("vq", losses, {&net});
}

TEST_F(GoldenPrograms, ClassifierOfSeveralInputs) {
  struct Classifier : nn::ModuleOf<Tensor(const Tensor& ids, const Tensor& mask, const Tensor& dense)> {
    nn::Embedding words{*this, "words", {.count = 7, .features = 4}};
    nn::Linear mix{*this, "mix", {.in = 7, .out = 8}}, head{*this, "head", {.in = 8, .out = 3}};
    Tensor forward(const Tensor& ids, const Tensor& mask, const Tensor& dense) override {
      const Tensor weighted = words(ids) * reshape(mask, {-1, 5, 1});
      return head(relu(mix(concat({sum(weighted, {1}) / sum(mask, {1}, true), dense}, 1))));
    }
  } net;
  net.initialize(1);
  fill(net);
  TrainStep step(net, SgdOptions{.momentum = 0.9, .nesterov = true}, [&](const Tensors& b) {
    return cross_entropy(net(b[0], b[1], b[2]), b[3], {.label_smoothing = 0.1, .ignore_index = 2});
  });
  std::vector<double> losses;
  for (int t = 0; t < kSteps; ++t)
    losses.push_back(step({whole(data(t, 0, {kSamples, 5}), 3.4, DType::i64),
                           above(data(t, 1, {kSamples, 5}), -0.5, DType::f64) + 0.01,
                           data(t, 2, {kSamples, 3}), whole(data(t, 3, {kSamples}), 1.4, DType::i64)},
                          0.1));
  expect_equal("multi_input", losses, {&net});
}

}  // namespace
}  // namespace tandem::testing
