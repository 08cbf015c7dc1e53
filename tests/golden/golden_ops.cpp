#include "golden_ops.h"

#include <tandem/ops/activation.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/embedding_bag.h>
#include <tandem/ops/group_norm.h>
#include <tandem/ops/index.h>
#include <tandem/ops/interpolate.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/lstm.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/ops/update.h>

namespace tandem::testing {
using namespace engine;
namespace {

void add_pointwise(GoldenOps& ops) {
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
           {"relu", relu},
           {"abs", abs},
           {"neg", neg},
           {"exp", exp},
           {"log", log},
           {"sqrt", sqrt},
           {"rsqrt", rsqrt},
           {"tanh", tanh},
           {"sigmoid", sigmoid},
           {"erf", erf},
           {"gelu", gelu},
           {"cast", [](const Tensor& x) { return cast(cast(x, DType::f32), DType::f64); }},
           {"clamp", [](const Tensor& x) { return clamp(x, -1, 2); }},
           {"maximum 0.25", [](const Tensor& x) { return maximum(x, 0.25); }},
           {"minimum 0.25", [](const Tensor& x) { return minimum(x, 0.25); }},
           {"floor", floor}})
    ops[name] = [f = f](const Tensors& x) { return Tensors{f(x[0])}; };
  for (const auto& [name, f] : std::map<std::string, Tensor (*)(const Tensor&, const Tensor&)>{
           {"add", add},
           {"sub", sub},
           {"mul", mul},
           {"div", div},
           {"maximum", maximum},
           {"minimum", minimum},
           {"eq", [](const Tensor&a, const Tensor&b) { return cast(equal(a, b), DType::f64); }},
           {"ne", [](const Tensor&a, const Tensor&b) { return cast(not_equal(a, b), DType::f64); }},
           {"lt", [](const Tensor&a, const Tensor&b) { return cast(less(a, b), DType::f64); }},
           {"le", [](const Tensor&a, const Tensor&b) { return cast(less_equal(a, b), DType::f64); }},
           {"gt", [](const Tensor&a, const Tensor&b) { return cast(greater(a, b), DType::f64); }},
           {"ge", [](const Tensor&a, const Tensor&b) { return cast(greater_equal(a, b), DType::f64); }}})
    ops[name] = [f = f](const Tensors& x) { return Tensors{f(x[0], x[1])}; };
  ops["where"] = [](const Tensors& x) { return Tensors{where(x[2], x[0], x[1])}; };
}

void add_reductions_and_losses(GoldenOps& ops) {
  ops["sum"] = [](const Tensors& x) { return Tensors{sum(x[0], {0, 2})}; };
  ops["mean"] = [](const Tensors& x) { return Tensors{mean(x[0], {1}, /*keep_dims=*/true)}; };
  ops["max"] = [](const Tensors& x) { return Tensors{max(x[0], {1})}; };
  ops["min"] = [](const Tensors& x) { return Tensors{min(x[0], {1})}; };
  ops["argmax"] = [](const Tensors& x) { return Tensors{argmax(x[0], 1)}; };
  ops["argmin"] = [](const Tensors& x) { return Tensors{argmin(x[0], 0)}; };
  ops["variance"] = [](const Tensors& x) { return Tensors{variance(x[0], {0, 2})}; };
  ops["variance biased"] = [](const Tensors& x) {
    return Tensors{variance(x[0], {0, 2}, /*unbiased=*/false, /*keep_dims=*/true)};
  };
  ops["l2_norm"] = [](const Tensors& x) { return Tensors{l2_norm(x[0], {2})}; };
  ops["softmax"] = [](const Tensors& x) { return Tensors{softmax(x[0])}; };
  ops["log_softmax"] = [](const Tensors& x) { return Tensors{log_softmax(x[0])}; };
  ops["cross_entropy"] = [](const Tensors& x) { return Tensors{cross_entropy(x[0], x[1])}; };
  ops["cross_entropy 0.1"] = [](const Tensors& x) { return Tensors{cross_entropy(x[0], x[1], 0.1)}; };
  ops["bce_with_logits"] = [](const Tensors& x) { return Tensors{bce_with_logits(x[0], x[1])}; };
  ops["mse_loss"] = [](const Tensors& x) { return Tensors{mse_loss(x[0], x[1])}; };
  ops["l1_loss"] = [](const Tensors& x) { return Tensors{l1_loss(x[0], x[1])}; };
  ops["smooth_l1_loss 0.5"] = [](const Tensors& x) { return Tensors{smooth_l1_loss(x[0], x[1], 0.5)}; };
}

void add_norms(GoldenOps& ops) {
  ops["batch_norm"] = [](const Tensors& x) {
    const BatchNormResult r = batch_norm(x[0], x[1], x[2], 1e-3);
    return Tensors{r.y, r.mean, r.variance};
  };
  ops["batch_norm_inference"] = [](const Tensors& x) {
    return Tensors{batch_norm_inference(x[0], x[1], x[2], x[3], x[4], 1e-3)};
  };
  ops["layer_norm"] = [](const Tensors& x) { return Tensors{layer_norm(x[0], x[1], x[2], 1e-3)}; };
  ops["rms_norm"] = [](const Tensors& x) { return Tensors{rms_norm(x[0], x[1], 1e-3)}; };
  for (int groups : {1, 2, 6})
    ops["group_norm " + std::to_string(groups)] = [groups](const Tensors& x) {
      return Tensors{group_norm(x[0], groups, x[1], x[2], 1e-3)};
    };
}

void add_shapes(GoldenOps& ops) {
  ops["reshape"] = [](const Tensors& x) { return Tensors{reshape(x[0], {5, 3})}; };
  ops["transpose"] = [](const Tensors& x) { return Tensors{transpose(x[0], {2, 0, 1})}; };
  ops["concat"] = [](const Tensors& x) { return Tensors{concat(x, 1)}; };
  ops["slice"] = [](const Tensors& x) { return Tensors{slice(x[0], 1, 1, 4)}; };
  ops["slice 1:8:3"] = [](const Tensors& x) { return Tensors{slice(x[0], 1, 1, 8, 3)}; };
  ops["slice ::2"] = [](const Tensors& x) { return Tensors{slice(x[0], 1, 0, 9, 2)}; };
  ops["slice 0:1:5"] = [](const Tensors& x) { return Tensors{slice(x[0], 1, 0, 1, 5)}; };
  ops["slice 2:9:4"] = [](const Tensors& x) { return Tensors{slice(x[0], 1, 2, 9, 4)}; };
  ops["slice axes"] = [](const Tensors& x) {
    return Tensors{slice(x[0], {{0, 1, 4, 2}, {1, 0, 7, 3}, {2, 2, 3}})};
  };
  ops["pad"] = [](const Tensors& x) { return Tensors{pad(x[0], 1, 1, 2)}; };
  ops["broadcast_to"] = [](const Tensors& x) { return Tensors{broadcast_to(x[0], {2, 3, 5})}; };
  ops["split"] = [](const Tensors& x) { return split(x[0], {1, 4}, 1); };
  ops["stack"] = [](const Tensors& x) { return Tensors{stack(x, 1)}; };
  ops["flip"] = [](const Tensors& x) { return Tensors{flip(x[0], {0, 1})}; };
  ops["gather"] = [](const Tensors& x) { return Tensors{gather(x[0], 1, x[1])}; };
  ops["scatter_add"] = [](const Tensors& x) { return Tensors{scatter_add(x[0], 1, x[1], x[2])}; };
  ops["embedding"] = [](const Tensors& x) { return Tensors{embedding(x[0], x[1])}; };
  for (const auto& [mode, name] : {std::pair(BagMode::sum, "sum"), {BagMode::mean, "mean"}})
    ops[std::string("embedding_bag ") + name] = [mode = mode](const Tensors& x) {
      return Tensors{embedding_bag({x[0], x[1]}, x[2], mode)};
    };
  ops["one_hot"] = [](const Tensors& x) { return Tensors{one_hot(x[0], 6, DType::f64)}; };
}

void add_pooling(GoldenOps& ops) {
  ops["adaptive_avg_pool2d"] = [](const Tensors& x) { return Tensors{adaptive_avg_pool2d(x[0], {3, 2})}; };
  ops["adaptive_max_pool2d"] = [](const Tensors& x) { return Tensors{adaptive_max_pool2d(x[0], {3, 2})}; };
  ops["global_max_pool2d"] = [](const Tensors& x) { return Tensors{global_max_pool2d(x[0])}; };
  ops["global_avg_pool2d"] = [](const Tensors& x) { return Tensors{global_avg_pool2d(x[0])}; };
  ops["max_pool2d"] = [](const Tensors& x) { return Tensors{max_pool2d(x[0], 2)}; };
  ops["max_pool2d overlapping"] = [](const Tensors& x) {
    return Tensors{max_pool2d(x[0], {{3, 2}, {2, 1}, {1, 0}})};
  };
  ops["max_pool2d gradient"] = [](const Tensors& x) {  // through the gradient that it passes on
    const Tensor index = apply_op(std::make_shared<MaxPool2dOp>(Pool2dOptions(2)), {x[0]})[1];
    const auto adjoint =
        std::make_shared<MaxPool2dGradOp>(Pool2dOptions(2), Size2{x[0].size(1), x[0].size(2)});
    return Tensors{apply_op1(adjoint, {x[1], index})};
  };
  ops["avg_pool2d"] = [](const Tensors& x) { return Tensors{avg_pool2d(x[0], 2)}; };
  ops["avg_pool2d padded"] = [](const Tensors& x) { return Tensors{avg_pool2d(x[0], {3, 2, 1})}; };
  ops["avg_pool2d covered"] = [](const Tensors& x) { return Tensors{avg_pool2d(x[0], {3, 2, 1, false})}; };
}

void add_products(GoldenOps& ops) {
  for (bool a : {false, true})
    for (bool b : {false, true})
      ops["matmul " + std::to_string(int{a}) + std::to_string(int{b})] = [a, b](const Tensors& x) {
        return Tensors{matmul(x[0], x[1], {.transpose_a = a, .transpose_b = b})};
      };
  ops["linear"] = [](const Tensors& x) { return Tensors{linear(x[0], x[1], x[2])}; };
  for (const auto& [name, options] :
       std::map<std::string, Conv2dOptions>{{"conv2d", {}},
                                            {"conv2d pixels", {}},
                                            {"conv2d strided", {.stride = {2, 1}, .padding = {1, 2}}},
                                            {"conv2d dilated", {.padding = 2, .dilation = {2, 1}}},
                                            {"conv2d groups", {.padding = 1, .groups = 2}},
                                            {"depthwise", {.stride = 2, .padding = 1, .groups = 4}}})
    ops[name] = [o = options](const Tensors& x) {
      return Tensors{conv2d(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), o)};
    };
  ops["conv_transpose2d plain"] = [](const Tensors& x) { return Tensors{conv_transpose2d(x[0], x[1])}; };
  ops["conv_transpose2d"] = [](const Tensors& x) {
    return Tensors{conv_transpose2d(
        x[0], x[1], x[2],
        {.stride = {3, 2}, .padding = {1, 2}, .output_padding = {2, 0}, .dilation = {1, 2}, .groups = 2})};
  };
}

void add_updates(GoldenOps& ops) {
  ops["sgd"] = [](const Tensors& x) { return sgd_update(x[0], x[1], x[2], {.weight_decay = 0.25}); };
  for (bool nesterov : {false, true})
    ops[nesterov ? "sgd nesterov" : "sgd momentum"] = [nesterov](const Tensors& x) {
      return sgd_update(x[0], x[1], x[2], x[3],
                        {.momentum = 0.75, .weight_decay = 0.25, .nesterov = nesterov});
    };
  for (bool decoupled : {false, true})
    ops[decoupled ? "adamw" : "adam"] = [decoupled](const Tensors& x) {
      return adam_update(
          x[0], x[1], x[2], x[3], x[4], x[5],
          {.beta1 = 0.75, .beta2 = 0.875, .epsilon = 1e-3, .weight_decay = 0.25, .decoupled = decoupled});
    };
  ops["predict"] = [](const Tensors& x) { return Tensors{predict(x[0], x[1], x[2])}; };
}

void add_options(GoldenOps& ops) {
  for (const bool ignores : {false, true})
    for (const double smoothing : {0.0, 0.1})
      ops[std::string("cross_entropy weighted") + (smoothing > 0 ? " 0.1" : "") +
          (ignores ? " ignoring" : "")] = [=](const Tensors& x) {
        CrossEntropyOptions o{.label_smoothing = smoothing, .class_weights = x[2]};
        if (ignores) o.ignore_index = 1;
        return Tensors{cross_entropy(x[0], x[1], o)};
      };
  ops["cross_entropy ignoring"] = [](const Tensors& x) {
    return Tensors{cross_entropy(x[0], x[1], {.ignore_index = 1})};
  };
  ops["cross_entropy pixels"] = [](const Tensors& x) { return Tensors{cross_entropy(x[0], x[1], 0.1)}; };
  for (const Size2 size : {Size2{8, 6}, Size2{3, 5}, Size2{1, 2}}) {
    ops["interpolate nearest " + to_string(size)] = [=](const Tensors& x) {
      return Tensors{interpolate(x[0], {.size = size})};
    };
    for (const bool corners : {false, true})
      ops[std::string("interpolate bilinear ") + (corners ? "corners " : "") + to_string(size)] =
          [=](const Tensors& x) {
            return Tensors{
                interpolate(x[0], {.size = size, .mode = Interpolation::bilinear, .align_corners = corners})};
          };
  }
  for (const int diagonal : {-1, 0, 1}) {
    ops["tril " + std::to_string(diagonal)] = [=](const Tensors& x) { return Tensors{tril(x[0], diagonal)}; };
    ops["triu " + std::to_string(diagonal)] = [=](const Tensors& x) { return Tensors{triu(x[0], diagonal)}; };
  }
  ops["arange"] = [](const Tensors&) { return Tensors{arange(-1, 2, 0.75, DType::f64)}; };
  ops["index"] = [](const Tensors& x) {
    return Tensors{x[0][0], x[0](-1, Slice{1, 3}), x[0](Slice{}, 0, Slice{.step = 2}), x[0](1, -1, -2)};
  };
  for (const char* kind : {"rows", "batches", "broadcast"})
    ops[std::string("matmul ") + kind] = [](const Tensors& x) { return Tensors{matmul(x[0], x[1])}; };
}

void add_attention(GoldenOps& ops) {
  const auto attend = [](AttentionOptions options) {
    return [options](const Tensors& x) {
      AttentionOptions o = options;
      if (x.size() > 3) o.key_mask = cast(x[3], DType::b8);
      return Tensors{x.size() == 1 ? attention(x[0], o) : attention(x[0], x[1], x[2], o)};
    };
  };
  ops["attention"] = attend({.heads = 2});
  ops["attention causal"] = attend({.heads = 3, .causal = true});
  ops["attention masked"] = attend({.heads = 2});
  ops["attention packed"] = attend({.heads = 2, .causal = true});
  ops["gelu_tanh"] = [](const Tensors& x) { return Tensors{gelu_tanh(x[0])}; };
}

// x [, lengths], weights of the inputs and of the hidden outputs, two biases [, the projection].
void add_lstm(GoldenOps& ops) {
  for (const bool reverse : {false, true})
    for (const char* kind : {"", " projected", " lengths"})
      ops[std::string("lstm") + kind + (reverse ? " reverse" : "")] = [reverse](const Tensors& x) {
        const std::size_t first = x[1].dtype() == DType::i32 ? 2 : 1;
        const bool projected = x.size() > first + 4;
        return Tensors{lstm(x[0],
                            {.input = x[first],
                             .hidden = x[first + 1],
                             .bias = x[first + 2] + x[first + 3],
                             .projection = projected ? x[first + 4] : Tensor()},
                            {.reverse = reverse, .lengths = first == 2 ? x[1] : Tensor()})};
      };
}

}  // namespace

GoldenOps golden_ops() {
  GoldenOps ops;
  for (auto* add : {add_pointwise, add_reductions_and_losses, add_norms, add_shapes, add_pooling,
                    add_products, add_updates, add_options, add_attention, add_lstm})
    add(ops);
  return ops;
}

}  // namespace tandem::testing
