// Attention against its composition of other ops, and what it refuses.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/ops/attention.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

#include "expect_error.h"
#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

Tensor heads_of(const Tensor& x, int heads) {
  return transpose(reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads}), {0, 2, 1, 3});
}

// Attention with arrays of T·S elements.
Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const std::int64_t samples = q.size(0), queries = q.size(1), keys = k.size(1);
  Tensor seen = Tensor::full({q.dtype(), {samples, 1, queries, keys}}, 1);
  if (o.causal) seen = seen * tril(Tensor::full({q.dtype(), {queries, keys}}, 1));
  if (o.key_mask) seen = seen * cast(reshape(o.key_mask, {samples, 1, 1, keys}), q.dtype());
  const double factor = o.scale > 0 ? o.scale : 1 / std::sqrt(static_cast<double>(q.size(2) / o.heads));
  const Tensor scores =
      scale(matmul(heads_of(q, o.heads), heads_of(k, o.heads), {.transpose_b = true}), factor);
  // A query that sees nothing has equal weights, which are then set to 0.
  Tensor weights = softmax(where(equal(seen, Tensor::full({q.dtype(), {}}, 1)), scores, -1e30)) * seen;
  if (o.dropout > 0) weights = dropout(weights, o.dropout, o.seed);
  return reshape(transpose(matmul(weights, heads_of(v, o.heads)), {0, 2, 1, 3}), q.shape());
}

struct Extents {
  std::int64_t samples, queries, keys, features;
  int heads;
};

TEST(Attention, EqualsItsCompositionAlsoWithDropout) {
  for (const auto& [samples, queries, keys, features, heads] :
       {Extents{2, 5, 7, 8, 2}, {1, 131, 9, 8, 2}, {2, 40, 300, 24, 3}, {2, 140, 270, 32, 4}})
    for (const bool causal : {false, true})
      for (const bool masked : {false, true})
        for (const double p : {0.0, 0.3}) {
          SCOPED_TRACE(fmt::format("{}x{}x{}x{} heads {} causal {} masked {} p {}", samples, queries, keys,
                                   features, heads, causal, masked, p));
          OpCase fused{"attention",
                       {f32({samples, queries, features}, -2, 2), f32({samples, keys, features}, -2, 2),
                        f32({samples, keys, features}, -2, 2), i64({}, 0, 1 << 30), b8({samples, keys})},
                       {}};
          const auto options = [=](const Tensors& x) {
            return AttentionOptions{.heads = heads,
                                    .causal = causal,
                                    .scale = causal == masked ? 0.3 : 0,
                                    .dropout = p,
                                    .seed = x[3],
                                    .key_mask = masked ? x[4] : Tensor()};
          };
          OpCase in_parts = fused;
          fused.apply = [=](const Tensors& x) { return Tensors{attention(x[0], x[1], x[2], options(x))}; };
          in_parts.apply = [=](const Tensors& x) { return Tensors{composed(x[0], x[1], x[2], options(x))}; };
          const TracedCase a = trace_case(fused, DType::f32, true),
                           b = trace_case(in_parts, DType::f32, true);
          std::mt19937_64 rng(1);
          std::map<ValueId, Tensor> of_a, of_b;
          for (std::size_t i = 0; i < fused.inputs.size(); ++i)
            of_a[a.inputs[i]] = of_b[b.inputs[i]] = draw(fused.inputs[i], i, fused.inputs.size(), rng);
          of_a[a.cotangents[0]] = of_b[b.cotangents[0]] = draw(f32({samples, queries, features}), 0, 1, rng);
          const Contents x = run_graph(a.graph, of_a, {cpu_kernels()}),
                         y = run_graph(b.graph, of_b, {cpu_kernels()});
          const auto compare = [&](ValueId of_x, ValueId of_y) {
            EXPECT_LE(
                relative_difference(to_doubles(DType::f32, x.at(of_x)), to_doubles(DType::f32, y.at(of_y))),
                1e-5);
          };
          compare(a.outputs[0], b.outputs[0]);
          for (std::size_t i = 0; i < 3; ++i) compare(a.gradients[i], b.gradients[i]);
        }
}

TEST(Attention, QueryThatSeesNoKeyGivesZeroAndHasNoGradient) {
  Tensor q = Tensor::full({DType::f32, {2, 3, 4}}, 0.5).requires_grad(), k = q + 1;
  const Tensor mask = Tensor::from(std::vector<double>{1, 1, 0, 0, 0, 0}, {2, 3}, DType::b8);
  const Tensor y = attention(q, k, k, {.heads = 2, .key_mask = mask});
  sum(y).backward();
  for (int i = 12; i < 24; ++i) {
    EXPECT_EQ(0, y.values()[static_cast<std::size_t>(i)]);
    EXPECT_EQ(0, q.grad().values()[static_cast<std::size_t>(i)]);
  }
  EXPECT_NE(0, y.values()[0]);
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const auto zeros = [](Shape shape, DType dtype = DType::f32) {
    return Tensor::zeros({dtype, std::move(shape)});
  };
  const Tensor x = zeros({2, 3, 12});
  expect_error([&] { attention(x, x, x, {.heads = 5}); }, {"12 features do not split into 5 heads"});
  expect_error(
      [&] {
        attention(zeros({2, 3, 13}), {.heads = 1});
      },
      {"13 features", "queries, keys and values"});
  expect_error(
      [&] {
        attention(x, zeros({2, 5, 12}), zeros({2, 4, 12}), {});
      },
      {"v is f32[2, 4, 12]", "f32[2, 5, 12]"});
  expect_error([&] { attention(x, zeros({3, 3, 12}), x, {}); }, {"k is f32[3, 3, 12]", "f32[2, 3, 12]"});
  expect_error([&] { attention(x, zeros({2, 0, 12}), zeros({2, 0, 12}), {}); }, {"there are no keys"});
  expect_error([&] { attention(zeros({3, 12}), x, x, {}); }, {"q must be (N,T,C)", "f32[3, 12]"});
  expect_error(
      [&] {
        attention(x, x, x, {.key_mask = zeros({2, 4}, DType::b8)});
      },
      {"mask of the keys is bool[2, 4]", "bool[2, 3]"});
  expect_error([&] { attention(x, x, x, {.dropout = 0.1}); }, {"a dropout needs a seed"});
  expect_error([&] { attention(x, x, x, {.dropout = 1, .seed = zeros({}, DType::i64)}); },
               {"probability of dropping is 1"});
}

}  // namespace
}  // namespace tandem::testing
