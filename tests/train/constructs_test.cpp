// What a loss can be written with: each construct gives PyTorch's gradients, and the same at once, in a
// TrainStep, on ranks, in micro-batches, with recomputed activations and for several models.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/graph/state_dict.h>
#include <tandem/tandem.h>

#include "expect_error.h"
#include "test_files.h"

namespace tandem::testing {
namespace {

constexpr double kRate = 0.5;
constexpr std::int64_t kSamples = 8, kFeatures = 3;

// Two layers, dropout, a parameter that the loss uses by itself, and a buffer.
struct Net : nn::Module {
  using Module::Module;
  Tensor forward(const Tensor& x) override { return head(tanh(hidden(x))); }

  nn::Linear hidden{*this, "hidden", {.in = kFeatures, .out = 4}};
  nn::Linear head{*this, "head", {.in = 4, .out = kFeatures}};
  nn::Dropout dropout{*this, "dropout", 0.5};
  nn::BatchNorm norm{*this, "norm", {.channels = kFeatures}};
  Tensor weight = add_parameter("weight", Tensor::full({nn::default_dtype(), {}}, 0.75));
  Tensor kept = add_buffer("kept", Tensor::full({nn::default_dtype(), {}}, 2));
};

struct Construct {
  std::string name;
  std::function<Tensor(Net&, const Tensor& x)> loss;
  bool draws = false;  // random numbers
};
void PrintTo(const Construct& c, std::ostream* out) { *out << c.name; }

template <class F> Tensor without_gradient(const F& f) {
  const NoGrad no_grad;
  return f();
}

// A model whose output is the loss, as a Trainer needs it.
struct Whole : nn::Module {
  explicit Whole(const Construct& construct) : construct(construct) {}
  Tensor forward(const Tensor& x) override { return construct.loss(net, x); }
  const Construct& construct;
  Net net{*this, "net"};
};

// Row after row of a tensor, as samples.
class Rows final : public Dataset {
 public:
  explicit Rows(Tensor rows) : rows_(std::move(rows)) {}
  std::int64_t size() const override { return rows_.size(0); }
  TensorType type() const override { return {rows_.dtype(), {rows_.size(1)}}; }
  void get(std::int64_t, std::int64_t index, Sample& sample) const override {
    const auto bytes = rows_[index];
    sample.data.assign(bytes.bytes().begin(), bytes.bytes().end());
    sample.labels = {0};
  }

 private:
  const Tensor rows_;
};

const std::vector<Construct>& constructs() {
  static const std::vector<Construct> all = {
      {"plain", [](Net& net, const Tensor& x) { return mse_loss(net(x), x); }},
      {"no_grad_value",
       [](Net& net, const Tensor& x) {
         const Tensor target = without_gradient([&] { return 5.0 * mean(x) * net.weight; });
         return target + mean(x) * net.weight;
       }},
      {"no_grad_network",
       [](Net& net, const Tensor& x) {
         return mse_loss(net(x), without_gradient([&] { return tanh(net(x)); }) * 0.5);
       }},
      {"no_grad_view",
       [](Net& net, const Tensor& x) {
         const Tensor y = net(x);
         const Tensor target = without_gradient([&] { return reshape(y, {-1}) * 2.0; });
         return mse_loss(reshape(y, {-1}), target);
       }},
      {"no_grad_dropout",
       [](Net& net, const Tensor& x) {
         const Tensor target = without_gradient([&] { return net.dropout(net(x)); });
         return mse_loss(net.dropout(net(x)), target);
       },
       /*draws=*/true},
      {"no_grad_unused",
       [](Net& net, const Tensor& x) {
         without_gradient([&] { return net(x); });
         return mean(net(x));
       }},
      {"detach",
       [](Net& net, const Tensor& x) {
         const Tensor y = net(x);
         return mean(y * detach(y));
       }},
      {"detach_parameter",
       [](Net& net, const Tensor& x) { return mean(net(x) * detach(net.weight)) * net.weight; }},
      {"detach_twice",
       [](Net& net, const Tensor& x) {
         const Tensor y = detach(detach(net(x)));
         return mse_loss(net(y), x);
       }},
      {"detach_input", [](Net& net, const Tensor& x) { return mse_loss(net(detach(x)), x); }},
      {"straight_through",
       [](Net& net, const Tensor& x) {
         const Tensor h = net.hidden(x);
         return mse_loss(net.head(h + detach(floor(h * 4.0) / 4.0 - h)), x);
       }},
      {"policy_gradient",
       [](Net& net, const Tensor& x) {
         const Tensor p = log_softmax(net(x)), reward = detach(exp(p)) - 0.3;
         return -mean(p * reward);
       }},
      {"assign_then_read",
       [](Net& net, const Tensor& x) {
         const Tensor y = mean(x) * net.weight;
         assign(net.kept, y);
         return net.kept * 3.0 + y;
       }},
      {"assign_moving_average",
       [](Net& net, const Tensor& x) {
         const Tensor y = mean(net(x));
         assign(net.kept, net.kept * 0.9 + y * 0.1);
         return mean(net(x) * net.kept);
       }},
      {"assign_without_gradient",
       [](Net& net, const Tensor& x) {
         const Tensor y = mean(net(x));
         {
           const NoGrad no_grad;
           assign(net.kept, y * net.kept);
         }
         return y * net.kept;
       }},
      {"gradient_penalty",
       [](Net& net, const Tensor& x) {
         Tensor input = detach(x);
         input.requires_grad();
         const Tensor g = gradient(sum(net(input)), {input})[0];
         const Tensor norm = sqrt(sum(g * g, {1}) + 1e-12);
         return mean(net(x)) + 10.0 * mean((norm - 1.0) * (norm - 1.0));
       }},
      {"gradient_of_a_parameter",
       [](Net& net, const Tensor& x) {
         const Tensor loss = mse_loss(net(x) * net.weight, x);
         const Tensor g = gradient(loss, {net.weight})[0];
         return loss + g * g;
       }},
      {"gradient_without_gradient",
       [](Net& net, const Tensor& x) {
         const Tensor loss = mse_loss(net(x) * net.weight, x);
         return loss + detach(gradient(loss, {net.weight})[0]) * net.weight;
       }},
      {"third_derivative",
       [](Net& net, const Tensor& x) {
         Tensor input = detach(x);
         input.requires_grad();
         Tensor y = sum(tanh(input * net.weight));
         for (int i = 0; i < 2; ++i) y = sum(gradient(y, {input})[0]);
         return y;
       }},
      {"called_twice", [](Net& net, const Tensor& x) { return mse_loss(net(x), net(x * 0.5)); }},
      {"dropout_called_twice",
       [](Net& net, const Tensor& x) { return mse_loss(net.dropout(net(x)), net.dropout(net(x))); },
       /*draws=*/true},
      {"batch_norm", [](Net& net, const Tensor& x) { return mean(net.norm(net(x)) * x); }},
      {"batch_norm_called_twice",
       [](Net& net, const Tensor& x) {
         const Tensor first = net.norm(net(x)), second = net.norm(x);
         return mean(first * second);
       }},
      {"batch_norm_of_a_siamese_network",
       [](Net& net, const Tensor& x) {
         const auto embed = [&](const Tensor& a) { return tanh(net.norm(slice(net.hidden(a), 1, 0, 3))); };
         const Tensor a = embed(x), b = embed(flip(x, {0}));
         return mean((a - b) * (a - b));
       }},
      {"batch_norm_in_evaluation",
       [](Net& net, const Tensor& x) {
         const Tensor trained = net.norm(net(x));
         const nn::ModeScope evaluation(net, false);
         return mse_loss(trained, net.norm(x));
       }},
      {"noise",
       [](Net& net, const Tensor& x) {
         return mse_loss(net(x + standard_normal(x.type(), nn::current_seed()) * 0.1), x);
       },
       /*draws=*/true},
      {"variational",
       [](Net& net, const Tensor& x) {
         const Tensor h = net.hidden(x), mu = h(Slice{}, Slice{0, 2}), log_var = h(Slice{}, Slice{2});
         const Tensor z = mu + exp(log_var * 0.5) * standard_normal(mu.type(), nn::current_seed());
         return mse_loss(net.head(concat({z, z}, 1)), x) - 0.5 * mean(log_var + 1.0 - mu * mu - exp(log_var));
       },
       /*draws=*/true},
      {"vector_quantized",
       [](Net& net, const Tensor& x) {
         const Tensor h = net.hidden(x), codes = reshape(net.head.weight, {4, 3});
         const Tensor z = slice(h, 1, 0, 3);
         const Tensor distance = sum(z * z, {1}, true) - matmul(z, codes, {false, true}) * 2.0 +
                                 reshape(sum(codes * codes, {1}), {1, 4});
         const Tensor q = embedding(codes, argmin(distance));
         return mse_loss(z + detach(q - z), x) + mse_loss(q, detach(z)) + 0.25 * mse_loss(z, detach(q));
       }},
      {"mean_teacher",
       [](Net& net, const Tensor& x) {
         const Tensor y = net(x), teacher = without_gradient([&] { return net(x) * net.kept; });
         assign(net.kept, net.kept * 0.99 + detach(net.weight) * 0.01);
         return mse_loss(y, teacher);
       }},
      {"frozen_part",
       [](Net& net, const Tensor& x) {
         net.hidden.requires_grad(false);
         return mse_loss(net(x), x);
       }},
      {"frozen_by_detach",
       [](Net& net, const Tensor& x) {
         return mse_loss(linear(tanh(linear(x, detach(net.hidden.weight), detach(net.hidden.bias))),
                                net.head.weight, net.head.bias),
                         x);
       }},
      {"weights_used_twice",
       [](Net& net, const Tensor& x) {
         return mse_loss(matmul(net.hidden(x), net.hidden.weight) +
                             matmul(net.head(tanh(net.hidden(x))), net.head.weight)(Slice{}, Slice{0, 3}),
                         x);
       }},
      {"views",
       [](Net& net, const Tensor& x) {
         const Tensor y = transpose(reshape(net(x), {-1, 3, 1}), {1, 0, 2});
         return mean(y[0] * y[1]) + mean(y(-1, Slice{.step = 2}));
       }},
      {"indices",
       [](Net& net, const Tensor& x) {
         const Tensor ids = Tensor::from({2, 0, 1, 1}, {4}, DType::i64);
         return mean(embedding(net.hidden.weight, ids) * 2.0) + mean(net(x)(Slice{}, 1));
       }},
      {"cross_entropy_that_ignores",
       [](Net& net, const Tensor& x) {
         const Tensor y = net(x), labels = cast(floor(slice(x, 1, 0, 1) * 2.0) + 1.0, DType::i32);
         return cross_entropy(reshape(y, {-1, 1, 3}), labels,
                              {.label_smoothing = 0.1,
                               .ignore_index = 0,
                               .class_weights = Tensor::from({1, 2, 3}, {3}, x.dtype())});
       }},
      {"two_networks",
       [](Net& net, const Tensor& x) {
         const Tensor fake = net.hidden(x)(Slice{}, Slice{0, 3});
         return mean(softplus(-net.head(tanh(net.hidden(x))))) +
                mean(softplus(net.head(tanh(net.hidden(detach(fake))))));
       }},
      {"double_backward_of_a_norm",
       [](Net& net, const Tensor& x) {
         Tensor input = detach(x);
         input.requires_grad();
         const Tensor g = gradient(mean(net.norm(net(input)) * x) + sum(net(input) * input), {input})[0];
         return mean(g * g);
       }},
      {"gradient_step_inside",
       [](Net& net, const Tensor& x) {
         const Tensor inner = mse_loss(matmul(x, net.head.weight)(Slice{}, Slice{0, 3}), x);
         const Tensor adapted = net.head.weight - 0.1 * gradient(inner, {net.head.weight})[0];
         return mse_loss(matmul(x, adapted)(Slice{}, Slice{0, 3}), x);
       }},
      {"detach_between_parts",
       [](Net& net, const Tensor& x) { return mse_loss(net.head(detach(tanh(net.hidden(x)))), x); }},
      {"gradient_of_two_parameters",
       [](Net& net, const Tensor& x) {
         const Tensor loss = mse_loss(net(x) * net.weight, x);
         const Tensors g = gradient(loss, {net.weight, net.hidden.bias});
         return loss + g[0] * sum(g[1] * g[1]);
       }},
      {"causal_attention",
       [](Net& net, const Tensor& x) {
         const Tensor seen = tril(Tensor::full({x.dtype(), {x.size(0), x.size(0)}}, 1));
         const Tensor scores = matmul(net(x), x, {false, true}) * seen - (1.0 - seen) * 1e9;
         return mse_loss(matmul(softmax(scores), net(x)), x);
       }},
      {"enlarged",
       [](Net& net, const Tensor& x) {
         const Tensor y =
             interpolate(reshape(net(x), {-1, 1, 3, 1}), {.size = {2, 6}, .mode = Interpolation::bilinear});
         return mean(y * y * y);
       }},
      {"elu_and_selu",
       [](Net& net, const Tensor& x) { return mean(elu(net(x) * 4.0) * selu(net(x) * 4.0)); }},
      {"captured",
       [](Net& net, const Tensor& x) {
         return mse_loss(net(x), x * Tensor::from({1, 2, 3}, {3}, x.dtype()));
       }},
  };
  return all;
}

// State k by path, element j: 0.8·sin(2.3·(k + 1) + 1.3·j). Buffers are 1.5 larger: a variance is positive.
void fill(nn::ModuleBase& module) {
  const auto states = module.named_parameters();
  int k = 0;
  for (const auto& [path, p] : std::map(states.begin(), states.end())) {
    auto* x = p->tensor.as<double>();
    for (std::int64_t j = 0; j < p->tensor.elements(); ++j)
      x[j] = 0.8 * std::sin(2.3 * (k + 1) + 1.3 * static_cast<double>(j)) + (p->buffer ? 1.5 : 0);
    ++k;
  }
}

// Trains on one batch by hand, cut into `parts`, and returns the state afterwards. With `as_replicas` each
// part begins with the buffers of the batch before, else with what the part before assigned.
StateDict by_hand(const Construct& construct, const StateDict& begin, const Tensor& x, std::int64_t parts,
                  bool as_replicas) {
  const TeamSize as_planned(1);
  Whole whole(construct);
  whole.load(begin);
  const std::int64_t samples = x.size(0) / parts;
  for (std::int64_t i = 0; i < parts; ++i) {
    if (as_replicas)
      for (const auto& [path, p] : whole.named_parameters())
        if (p->buffer) assign(p->tensor, begin.at(path));
    const EagerBatch batch(0, as_replicas ? 0 : static_cast<int>(i));
    const Tensor loss = whole(slice(x, 0, i * samples, (i + 1) * samples));
    (parts == 1 ? loss : scale(loss, 1.0 / static_cast<double>(parts))).backward();
  }
  const Tensor rate = Tensor::full({DType::f64, {}}, kRate);
  const NoGrad no_grad;
  for (auto& [path, p] : whole.named_parameters())
    if (p->tensor.grad().defined()) assign(p->tensor, sgd_update(p->tensor, p->tensor.grad(), rate)[0]);
  return whole.state();
}

class Constructs : public ::testing::TestWithParam<Construct> {
 protected:
  Constructs() {
    std::vector<double> values;
    for (int i = 0; i < kSamples * kFeatures; ++i) values.push_back((i * 17 + 7) % 23 / 23.0 - 0.4);
    x_ = Tensor::from(values, {kSamples, kFeatures}, DType::f64);
  }
  StateDict begin(std::uint64_t seed = 1) {
    Whole whole(GetParam());
    whole.initialize(seed);
    return whole.state();
  }
  StateDict at_once(std::int64_t parts = 1, bool as_replicas = false, std::uint64_t seed = 1) {
    return by_hand(GetParam(), begin(seed), x_, parts, as_replicas);
  }
  StateDict in_a_step(const Strategy& strategy, const StateDict& begin) {
    return in_a_step(strategy, begin, x_);
  }
  static StateDict in_a_step(const Strategy& strategy, const StateDict& begin, const Tensor& x) {
    Whole whole(GetParam());
    whole.initialize(1);
    const auto models = static_cast<std::size_t>(strategy.models);
    TrainStep step([&](const Tensors& batch) { return whole(batch[0]); }, begin,
                   {.strategy = strategy, .seeds = std::vector<std::uint64_t>(models)});
    step.run({{x}}, std::vector<double>(models, kRate));
    return step.state();
  }
  static void expect_equal(const StateDict& a, const StateDict& b, bool buffers = true) {
    for (const auto& [path, value] : a)
      if (buffers || !(path == "net.kept" || path.starts_with("net.norm.running"))) {
        EXPECT_EQ(value.values(), b.at(path).values()) << path;
      }
  }

 private:
  const nn::DtypeScope f64_{DType::f64};

 protected:
  Tensor x_;
};

// tests/golden/make_constructs.py writes PyTorch's numbers. It has none for what draws; a variational
// autoencoder whose noise is given is in golden_programs_test.
TEST_P(Constructs, HavePyTorchsLossAndState) {
  static const auto golden = read_json(TANDEM_SOURCE "/tests/golden/constructs.json")["constructs"];
  ASSERT_NE(golden.contains(GetParam().name), GetParam().draws);
  if (GetParam().draws) return;
  const auto expect_near = [](double expected, double value, const std::string& what) {
    EXPECT_NEAR(expected, value, 1e-12 * std::max(1.0, std::fabs(expected))) << what;
  };
  Whole whole(GetParam());
  whole.initialize(1);
  fill(whole);
  const StateDict begin = whole.state();
  TrainStep step([&](const Tensors& batch) { return whole(batch[0]); }, begin);
  const auto& expected = golden.at(GetParam().name);
  for (const double loss : {whole(x_).item(), step({x_}, kRate)})
    expect_near(expected["loss"], loss, "the loss");
  const StateDict trained = step.state();
  expect_equal(by_hand(GetParam(), begin, x_, 1, /*as_replicas=*/false), trained);
  EXPECT_EQ(expected["state"].size(), trained.size());
  for (const auto& [name, values] : expected["state"].items()) {
    const auto given = trained.at("net." + name).values();
    ASSERT_EQ(values.size(), given.size()) << name;
    for (std::size_t i = 0; i < given.size(); ++i)
      expect_near(values[i], given[i], name + ", element " + std::to_string(i));
  }
}

TEST_P(Constructs, AreTheSameInATrainStep) { expect_equal(at_once(), in_a_step({}, begin())); }

TEST_P(Constructs, AreTheSameWithRecomputedActivations) {
  expect_equal(at_once(), in_a_step({.recompute = {"*"}}, begin()));
}

TEST_P(Constructs, AreTheSameInMicroBatches) {
  expect_equal(at_once(4), in_a_step({.microbatches = 4}, begin()));
}

TEST_P(Constructs, AreTheSameOnReplicas) {
  if (GetParam().draws) return;  // another test compares what replicas draw
  expect_equal(at_once(2, /*as_replicas=*/true), in_a_step({.replicas = 2}, begin()), /*buffers=*/false);
}

TEST_P(Constructs, AreTheSameForEachOfTwoModels) {
  const StateDict both = in_a_step({.models = 2}, stack_states(std::vector{begin(1), begin(2)}));
  for (std::size_t model = 0; model < 2; ++model)
    expect_equal(at_once(1, false, model + 1), unstack_states(both, 2).at(model));
}

TEST_P(Constructs, AreTheSameInATrainer) {
  Whole whole(GetParam());
  whole.load(begin());
  Trainer trainer(
      whole, std::make_shared<Rows>(x_),
      {.batch_size = kSamples,
       .batches = 1,
       .lr = {kRate},
       .objective = {.loss = [](const Tensor& loss, const Tensors&) { return loss; }, .correct = {}}});
  trainer.fit();
  expect_equal(at_once(), whole.state());
}

// Products in bf16 change the update by a few per cent of its length.
TEST_P(Constructs, AreCloseInMixedPrecision) {
  const nn::DtypeScope f32(DType::f32);
  const StateDict start = begin();
  const Tensor x = cast(x_, DType::f32);
  const StateDict full = in_a_step({}, start, x), mixed = in_a_step({.amp = DType::bf16}, start, x);
  double difference = 0, length = 0;
  for (const auto& [path, value] : full)
    for (std::int64_t i = 0; i < value.elements(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      difference += std::pow(value.values()[at] - mixed.at(path).values()[at], 2);
      length += std::pow(value.values()[at] - start.at(path).values()[at], 2);
    }
  EXPECT_LE(std::sqrt(difference), 0.05 * std::sqrt(length) + 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, Constructs, ::testing::ValuesIn(constructs()),
                         [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace tandem::testing
