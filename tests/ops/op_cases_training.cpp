// Losses, dropout and the optimizer's updates.
#include <fmt/format.h>

#include <tandem/ops/loss.h>
#include <tandem/ops/random.h>
#include <tandem/ops/sparse_update.h>
#include <tandem/ops/update.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;
namespace {

// Logits: one class, one sample, odd numbers, more classes than a tile, many rows.
const std::vector<Shape> kLogits{{1, 1}, {1, 7}, {5, 3}, {17, 10}, {3, 1000}, {301, 101}};

// Means of expressions with two operands.
void add_elementwise(OpCases& cases) {
  using Loss = Tensor (*)(const Tensor&, const Tensor&);
  const std::vector<std::pair<const char*, Loss>> losses{
      {"bce_with_logits", bce_with_logits},
      {"mse_loss", mse_loss},
      {"l1_loss", l1_loss},
      {"smooth_l1_loss", [](const Tensor& a, const Tensor& b) { return smooth_l1_loss(a, b, 0.7); }}};
  for (const auto& [name, loss] : losses)
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{3, 5}, Shape{17, 10, 3}, Shape{301, 101}}) {
      const bool targets = std::string(name) == "bce_with_logits";
      OpCase c{
          fmt::format("{}_{}", name, shape_name(shape)),
          {f32_distinct(shape, targets ? -9 : -2, targets ? 9 : 2), f32_distinct(shape, targets ? 0 : -1, 1)},
          [f = loss](const Tensors& x) { return Tensors{f(x[0], x[1])}; }};
      c.any_team = true;
      cases.push_back(c);
      if (shape.size() == 2 && shape[0] < 10) cases.push_back(derivative_of(c));
    }
}

}  // namespace

OpCases loss_cases() {
  OpCases cases;
  for (const Shape& shape : kLogits) {
    const double last = static_cast<double>(shape[1] - 1);
    OpCase s{"softmax_" + shape_name(shape), {f32(shape, -4, 4)}, [](const Tensors& x) {
               return Tensors{softmax(x[0])};
             }};
    OpCase l{"log_softmax_" + shape_name(shape), {f32(shape, -4, 4)}, [](const Tensors& x) {
               return Tensors{log_softmax(x[0])};
             }};
    OpCase e{"cross_entropy_" + shape_name(shape),
             {f32(shape, -4, 4), i32({shape[0]}, 0, last)},
             [](const Tensors& x) { return Tensors{cross_entropy(x[0], x[1])}; }};
    OpCase m{"cross_entropy_smoothed_" + shape_name(shape),
             {f32(shape, -4, 4), i32({shape[0]}, 0, last)},
             [](const Tensors& x) { return Tensors{cross_entropy(x[0], x[1], 0.1)}; }};
    e.no_bf16 = m.no_bf16 = "the loss is computed in f32 or f64, cast first";
    for (OpCase* c : {&s, &l, &e, &m}) {
      c->any_team = true;
      c->inner_values = 1;
      cases.push_back(*c);
      if (element_count(shape) < 200 && shape[1] > 1) cases.push_back(derivative_of(*c));
    }
    OpCase n{"correct_count_" + shape_name(shape),
             {f32_distinct(shape), i32({shape[0]}, 0, last)},
             [](const Tensors& x) { return Tensors{correct_count(x[0], x[1])}; }};
    n.no_gradient = "a count is constant almost everywhere";
    n.exact = n.any_team = true;
    cases.push_back(n);
  }
  add_elementwise(cases);
  for (const Shape& shape : {Shape{1, 2}, Shape{5, 3}, Shape{2, 3, 4}, Shape{33, 17}})
    for (const double smoothing : {0.0, 0.2})
      for (const bool weighted : {false, true})
        for (const bool ignores : {false, true}) {
          if (!weighted && !ignores && shape.size() == 2) continue;
          const std::int64_t classes = shape.back();
          OpCase c{fmt::format("cross_entropy_s{}_weighted{}_ignores{}_{}", int{smoothing > 0}, int{weighted},
                               int{ignores}, shape_name(shape)),
                   {f32(shape, -4, 4),
                    i32(Shape(shape.begin(), shape.end() - 1), 0, static_cast<double>(classes - 1))},
                   [=](const Tensors& x) {
                     return Tensors{cross_entropy(
                         x[0], x[1],
                         {.label_smoothing = smoothing,
                          .ignore_index = ignores ? std::optional<std::int64_t>(1) : std::nullopt,
                          .class_weights = x.size() > 2 ? x[2] : Tensor()})};
                   }};
          if (weighted) {
            c.inputs.push_back(f32({classes}, 0.5, 2));
            c.inputs.back().differentiable = false;  // with one sample the derivative cancels to 0
          }
          c.no_bf16 = "the loss is computed in f32 or f64, cast first";
          c.inner_values = 1;
          cases.push_back(c);
          if (element_count(shape) < 100 && shape[0] > 1) cases.push_back(derivative_of(c));
        }
  for (const Shape& shape : {Shape{5}, Shape{2, 3, 4}, Shape{0, 3}})
    for (bool logarithm : {false, true}) {
      OpCase c{
          fmt::format("softmax{}_{}", int{logarithm}, shape_name(shape)),
          {f32(shape)},
          [logarithm](const Tensors& x) { return Tensors{logarithm ? log_softmax(x[0]) : softmax(x[0])}; }};
      c.any_team = true;
      c.inner_values = 1;
      cases.push_back(c);
      c.name += "_bf16";
      c.inputs = {{{DType::bf16, shape}, -2, 2}};
      c.no_finite_difference = "bf16 does not resolve the step";
      cases.push_back(c);
    }
  return cases;
}

OpCases random_cases() {
  OpCases cases;
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{3, 5}, Shape{4, 2, 3}, Shape{2, 1023}, Shape{130, 517},
                             Shape{0, 3}, Shape{3, 0}})
    for (double p : {0.0, 0.3}) {
      OpCase c{fmt::format("dropout_{}_p{}", shape_name(shape), static_cast<int>(p * 10)),
               {f32(shape), i64({}, 0, 1 << 30)},
               [p](const Tensors& x) { return Tensors{dropout(x[0], p, x[1])}; }};
      c.exact = c.any_team = true;
      cases.push_back(c);
      if (p > 0 && shape == Shape{3, 5}) cases.push_back(derivative_of(c));
    }
  for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{4, 2, 3}, Shape{130, 17}, Shape{0, 3}})
    for (DType dtype : {DType::f32, DType::bf16})
      for (const bool normals : {false, true}) {
        OpCase c{fmt::format("{}_{}_{}", normals ? "standard_normal" : "uniform", name_of(dtype),
                             shape_name(shape)),
                 {i64({}, 0, 1 << 30)},
                 [=](const Tensors& x) {
                   const TensorType type{dtype, shape};
                   return Tensors{normals ? standard_normal(type, x[0]) : uniform(type, x[0])};
                 }};
        c.no_gradient = "the numbers are drawn";
        c.exact = c.any_team = true;
        cases.push_back(c);
      }
  return cases;
}

OpCases update_cases() {
  OpCases cases;
  const auto add = [&](const std::string& name, std::vector<InputSpec> inputs,
                       std::function<Tensors(const Tensors&)> apply) {
    OpCase c{name, std::move(inputs), std::move(apply)};
    c.no_gradient = "updates are not differentiated";
    c.no_bf16 =
        name.starts_with("sparse") ? "updates tables (V,…) in f32 or f64" : "updates f32 or f64, not bf16";
    c.exact = c.any_team = true;
    cases.push_back(c);
  };
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{7}, Shape{3, 5}, Shape{3, 341}, Shape{127, 601}, Shape{3, 0}}) {
    const std::string name = shape_name(shape);
    const InputSpec x = f32(shape), rate = f32({}, 0.01, 0.1);
    for (const SgdOptions& o : {SgdOptions{0.9}, SgdOptions{0.9, 1e-2}, SgdOptions{0.9, 1e-2, true}})
      add(fmt::format("sgd_momentum_wd{}_nesterov{}_{}", int{o.weight_decay > 0}, int{o.nesterov}, name),
          {x, x, x, rate}, [o](const Tensors& t) { return sgd_update(t[0], t[1], t[2], t[3], o); });
    for (double decay : {0.0, 1e-2})
      add(fmt::format("sgd_wd{}_{}", int{decay > 0}, name), {x, x, rate},
          [decay](const Tensors& t) { return sgd_update(t[0], t[1], t[2], {.weight_decay = decay}); });
    const InputSpec square = f32(shape, 0, 1), steps = f32({}, 0, 50);
    for (const AdamOptions& o : {AdamOptions{}, AdamOptions{.beta1 = 0.5, .weight_decay = 1e-2},
                                 AdamOptions{.weight_decay = 1e-2, .decoupled = true}})
      add(fmt::format("adam_wd{}_decoupled{}_{}", int{o.weight_decay > 0}, int{o.decoupled}, name),
          {x, x, square, x, steps, rate},
          [o](const Tensors& t) { return adam_update(t[0], t[1], t[2], t[3], t[4], t[5], o); });
    for (const bool happens : {true, false}) {
      const std::string guarded = fmt::format("_guarded{}_{}", int{happens}, name);
      const auto when = [happens] { return Tensor::full({DType::b8, {}}, happens ? 1 : 0); };
      add("sgd_momentum" + guarded, {x, x, x, rate},
          [when](const Tensors& t) { return sgd_update(t[0], t[1], t[2], t[3], {.momentum = 0.9}, when()); });
      add("sgd" + guarded, {x, x, rate},
          [when](const Tensors& t) { return sgd_update(t[0], t[1], t[2], SgdOptions{}, when()); });
      add("adam" + guarded, {x, x, square, x, steps, rate},
          [when](const Tensors& t) { return adam_update(t[0], t[1], t[2], t[3], t[4], t[5], {}, when()); });
    }
    add("predict_" + name, {x, x, rate}, [](const Tensors& t) { return Tensors{predict(t[0], t[1], t[2])}; });
  }
  const Shape large{3, 120'001};  // predictions go past the caches, and parts of teams begin anywhere
  add("predict_" + shape_name(large), {f32(large), f32(large), f32({}, 0.01, 0.1)},
      [](const Tensors& t) { return Tensors{predict(t[0], t[1], t[2])}; });
  // Tables with few rows, so that ids repeat, and with many, of which most stay.
  const InputSpec rate = f32({}, 0.01, 0.1);
  for (const std::int64_t rows : {1, 5, 300})
    for (const std::int64_t features : {1, 7, 64}) {
      const InputSpec table = f32({rows, features});
      const auto last = static_cast<double>(rows - 1);
      const std::string name = fmt::format("_{}x{}", rows, features);
      for (const std::int64_t texts : {4, 401})  // a few lookups, and enough for a team
        add(fmt::format("sparse_sgd_{}x3{}", texts, name),
            {table, rate, i32({texts, 3}, 0, last), f32({texts, 3, features})}, [](const Tensors& t) {
              return Tensors{sparse_sgd_update(t[0], t[1], {t[2], t[3]})};
            });
      // Two micro-batches, of which the second has two lookups; of one replica and of three.
      for (const std::int64_t replicas : {0, 3}) {
        const auto of_all = [&](Shape shape) {
          if (replicas > 0) shape.insert(shape.begin(), replicas);
          return shape;
        };
        std::vector<InputSpec> inputs{table, rate};
        for (const std::int64_t ids : {4, 6, 1}) {
          inputs.push_back(i32(of_all({ids}), 0, last));
          inputs.push_back(f32(of_all({ids, features})));
        }
        add(fmt::format("sparse_sgd_parts_replicas{}{}", replicas, name), inputs, [=](const Tensors& t) {
          return Tensors{sparse_sgd_update(t[0], t[1], Tensors(t.begin() + 2, t.end()),
                                           {.parts = {1, 2}, .replicas = static_cast<int>(replicas)})};
        });
        for (const bool mean : {false, true})
          add(fmt::format("sparse_sgd_bags_mean{}_replicas{}{}", int{mean}, replicas, name),
              {table, rate, i32(of_all({4, 3, 2}), -1, last), f32(of_all({4, 3, features}))},
              [=](const Tensors& t) {
                return Tensors{sparse_sgd_update(
                    t[0], t[1], {t[2], t[3]},
                    {.replicas = static_cast<int>(replicas), .bag = true, .mean = mean, .table = 1})};
              });
      }
    }
  return cases;
}

}  // namespace tandem::testing
