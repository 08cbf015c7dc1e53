#pragma once
#include <tandem/nn/layers.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

#include "lagged_loop.h"

namespace tandem::testing {

struct TiedMiddle final : nn::ModuleOf<Tensor(const Tensor&, const Tensor&)> {
  using ModuleOf::ModuleOf;
  nn::Linear linear{*this, "linear", {.in = 8, .out = 8}};
  Tensor forward(const Tensor& x, const Tensor& w) override {
    return tanh(linear(tandem::linear(matmul(x, w), w)));
  }
};

struct TiedHead final : nn::ModuleOf<Tensor(const Tensor&, const Tensor&)> {
  using ModuleOf::ModuleOf;
  nn::Linear linear{*this, "linear", {.in = 12, .out = 12}};
  Tensor forward(const Tensor& x, const Tensor& w) override { return linear(matmul(x, w)); }
};

/// The stem, the module `b`, and the head share one matrix: the projection of 12 inputs to 8 features, and
/// back. Cut at `a`, `b`, and `head`, the matrix is used on three of four stages.
struct TiedNetwork final : nn::Module {
  nn::Linear stem{*this, "stem", {.in = 12, .out = 8}}, a{*this, "a", {.in = 8, .out = 8}};
  TiedMiddle b{*this, "b"};
  TiedHead head{*this, "head"};
  Tensor forward(const Tensor& x) override {
    const Tensor y = relu(a(relu(stem(flatten(x)))));
    const Tensor& w = stem.named_parameters()[0].second->tensor;
    const Tensor z = b(y, for_module(w, "b"));
    return head(z, for_module(w, "head"));
  }
};

}  // namespace tandem::testing
