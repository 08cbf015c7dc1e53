// Ops give PyTorch's numbers, forward and backward: tests/golden/ops.json, which tests/golden/make_ops.py
// wrote.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tandem/core/eager.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/group_norm.h>
#include <tandem/ops/index.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem {
namespace {

using nlohmann::json;
using Function = std::function<Tensors(const Tensors&)>;

void add_pointwise(std::map<std::string, Function>& ops) {
  ops["pow"] = [](const Tensors& x) { return Tensors{pow(x[0], x[1])}; };
  for (const auto& [name, exponent] : std::map<std::string, double>{{"0", 0},
                                                                    {"1", 1},
                                                                    {"2", 2},
                                                                    {"3", 3},
                                                                    {"4", 4},
                                                                    {"-1", -1},
                                                                    {"0.5", 0.5},
                                                                    {"-0.5", -0.5},
                                                                    {"1.7", 1.7}})
    ops["pow " + name] = [e = exponent](const Tensors& x) { return Tensors{pow(x[0], e)}; };
  for (const auto& [name, f] : std::map<std::string, Tensor (*)(const Tensor&)>{
           {"softplus", softplus},
           {"silu", silu},
           {"elu 1.5", [](const Tensor& x) { return elu(x, 1.5); }},
           {"selu", selu},
           {"hard_sigmoid", hard_sigmoid},
           {"hard_swish", hard_swish},
           {"clamp", [](const Tensor& x) { return clamp(x, -1, 2); }},
           {"maximum 0.25", [](const Tensor& x) { return maximum(x, 0.25); }},
           {"minimum 0.25", [](const Tensor& x) { return minimum(x, 0.25); }},
           {"floor", floor}})
    ops[name] = [f = f](const Tensors& x) { return Tensors{f(x[0])}; };
}

void add_reductions_and_losses(std::map<std::string, Function>& ops) {
  ops["max"] = [](const Tensors& x) { return Tensors{max(x[0], {1})}; };
  ops["min"] = [](const Tensors& x) { return Tensors{min(x[0], {1})}; };
  ops["argmax"] = [](const Tensors& x) { return Tensors{argmax(x[0], 1)}; };
  ops["argmin"] = [](const Tensors& x) { return Tensors{argmin(x[0], 0)}; };
  ops["variance"] = [](const Tensors& x) { return Tensors{variance(x[0], {0, 2})}; };
  ops["variance biased"] = [](const Tensors& x) {
    return Tensors{variance(x[0], {0, 2}, /*unbiased=*/false, /*keep_dims=*/true)};
  };
  ops["l2_norm"] = [](const Tensors& x) { return Tensors{l2_norm(x[0], {2})}; };
  ops["cross_entropy 0.1"] = [](const Tensors& x) { return Tensors{cross_entropy(x[0], x[1], 0.1)}; };
  ops["bce_with_logits"] = [](const Tensors& x) { return Tensors{bce_with_logits(x[0], x[1])}; };
  ops["mse_loss"] = [](const Tensors& x) { return Tensors{mse_loss(x[0], x[1])}; };
  ops["l1_loss"] = [](const Tensors& x) { return Tensors{l1_loss(x[0], x[1])}; };
  ops["smooth_l1_loss 0.5"] = [](const Tensors& x) { return Tensors{smooth_l1_loss(x[0], x[1], 0.5)}; };
}

void add_shapes_and_images(std::map<std::string, Function>& ops) {
  ops["layer_norm"] = [](const Tensors& x) { return Tensors{layer_norm(x[0], x[1], x[2], 1e-3)}; };
  ops["rms_norm"] = [](const Tensors& x) { return Tensors{rms_norm(x[0], x[1], 1e-3)}; };
  for (int groups : {1, 2, 6})
    ops["group_norm " + std::to_string(groups)] = [groups](const Tensors& x) {
      return Tensors{group_norm(x[0], groups, x[1], x[2], 1e-3)};
    };
  ops["split"] = [](const Tensors& x) { return split(x[0], {1, 4}, 1); };
  ops["stack"] = [](const Tensors& x) { return Tensors{stack(x, 1)}; };
  ops["flip"] = [](const Tensors& x) { return Tensors{flip(x[0], {0, 1})}; };
  ops["gather"] = [](const Tensors& x) { return Tensors{gather(x[0], 1, x[1])}; };
  ops["scatter_add"] = [](const Tensors& x) { return Tensors{scatter_add(x[0], 1, x[1], x[2])}; };
  ops["embedding"] = [](const Tensors& x) { return Tensors{embedding(x[0], x[1])}; };
  ops["one_hot"] = [](const Tensors& x) { return Tensors{one_hot(x[0], 6, DType::f64)}; };
  ops["adaptive_avg_pool2d"] = [](const Tensors& x) { return Tensors{adaptive_avg_pool2d(x[0], {3, 2})}; };
  ops["adaptive_max_pool2d"] = [](const Tensors& x) { return Tensors{adaptive_max_pool2d(x[0], {3, 2})}; };
  ops["global_max_pool2d"] = [](const Tensors& x) { return Tensors{global_max_pool2d(x[0])}; };
  ops["conv_transpose2d"] = [](const Tensors& x) {
    return Tensors{conv_transpose2d(
        x[0], x[1], x[2],
        {.stride = {3, 2}, .padding = {1, 2}, .output_padding = {2, 0}, .dilation = {1, 2}, .groups = 2})};
  };
  ops["depthwise"] = [](const Tensors& x) {
    return Tensors{conv2d(x[0], x[1], {}, {.stride = 2, .padding = 1, .groups = 4})};
  };
}

Tensor tensor_of(const json& t) {
  return Tensor::from(t["values"].get<std::vector<double>>(), t["shape"].get<Shape>(),
                      dtype_from_name(t["dtype"].get<std::string>()));
}

void expect_near(const json& expected, const Tensor& actual, const std::string& what) {
  const Tensor e = tensor_of(expected);
  ASSERT_EQ(e.type(), actual.type()) << what;
  for (std::size_t i = 0; i < e.values().size(); ++i)
    EXPECT_NEAR(e.values()[i], actual.values()[i], 1e-12 * std::max(1.0, std::fabs(e.values()[i])))
        << what << ", element " << i;
}

void expect_golden(const json& c, const Function& function) {
  Tensors inputs;
  for (const json& t : c["inputs"]) {
    inputs.push_back(tensor_of(t));
    if (inputs.back().dtype() == DType::f64) inputs.back().requires_grad();
  }
  const Tensors outputs = function(inputs);
  ASSERT_EQ(c["outputs"].size(), outputs.size());
  Tensor loss = Tensor::zeros({DType::f64, {}});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    expect_near(c["outputs"][i], outputs[i], "output " + std::to_string(i));
    if (!c["cotangents"][i].is_null()) loss = loss + sum(outputs[i] * tensor_of(c["cotangents"][i]));
  }
  if (loss.needs_grad()) loss.backward();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const json& expected = c["grads"][i];
    ASSERT_EQ(expected.is_null(), !inputs[i].grad().defined()) << "gradient " << i;
    if (!expected.is_null()) expect_near(expected, inputs[i].grad(), "gradient " + std::to_string(i));
  }
}

TEST(GoldenOps, ValuesAndGradientsArePyTorchs) {
  std::map<std::string, Function> ops;
  add_pointwise(ops);
  add_reductions_and_losses(ops);
  add_shapes_and_images(ops);
  std::ifstream file(std::string(TANDEM_SOURCE) + "/tests/golden/ops.json");
  const json cases = json::parse(file)["cases"];
  EXPECT_EQ(cases.size(), ops.size());
  for (const json& c : cases) {
    const auto name = c["name"].get<std::string>();
    SCOPED_TRACE(name);
    ASSERT_TRUE(ops.contains(name));
    expect_golden(c, ops.at(name));
  }
}

}  // namespace
}  // namespace tandem
