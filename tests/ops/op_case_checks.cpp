// The checks that every op case must pass.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/mapped.h>

#include "op_case_test.h"

namespace tandem::testing {
using namespace engine;
namespace {

constexpr std::int64_t kModels = 3;
constexpr double kStep = 1e-6;  // of central differences in double

}  // namespace

TEST_P(OpCaseTest, FastKernelsMatchReference) {
  const OpCase& c = GetParam();
  auto rng = generator(c.name);
  const TracedCase single = trace_case(c, DType::f32, true), twice = trace_case(c, DType::f64, true);
  const auto arguments = draw_arguments(c, single, rng), exact = as_types_of(twice, single, arguments);
  const Contents fast = run_graph(single.graph, arguments, {cpu_kernels()});
  const Contents plain = run_graph(single.graph, arguments, {reference_kernels()});
  const Contents oracle = run_graph(twice.graph, exact, {reference_kernels()});
  const auto results = results_of(single);
  std::vector<std::vector<double>> expected;
  for (ValueId v : results_of(twice)) expected.push_back(values_of(twice.graph, oracle, v));
  ASSERT_EQ(results.size(), expected.size());
  const auto effect = effect_of_rounding(twice, exact, expected, kRounding, rng);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const double inner = c.inner_values * std::sqrt(static_cast<double>(expected[i].size()));
    const double allowed =
        kRoundings * (kRounding * norm(expected[i]) + effect[i]) + 4 * kRounding * inner + c.narrow_step;
    EXPECT_LE(difference(values_of(single.graph, fast, results[i]), expected[i]), allowed) << "result " << i;
    EXPECT_LE(difference(values_of(single.graph, plain, results[i]), expected[i]), allowed)
        << "result " << i << " of the reference kernels in f32";
    if (!c.exact) continue;
    EXPECT_EQ(fast.at(results[i]), plain.at(results[i]))
        << "result " << i << " does not equal the reference bit for bit";
  }
}

// Some elements of every argument are not finite; the kernels and the reference agree on which results are
// not finite.
TEST_P(OpCaseTest, InfinitiesAndNaNMatchTheReference) {
  const OpCase& c = GetParam();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::array kSpecial{std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity, 0.0, -0.0};
  auto rng = generator(c.name + "/infinities");
  const TracedCase t = trace_case(c, DType::f32, true);
  auto arguments = draw_arguments(c, t, rng);
  for (auto& [v, tensor] : arguments) {
    if (!is_floating(tensor.dtype())) continue;
    const double share = std::min(0.2, 3.0 / static_cast<double>(tensor.elements()));
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (draw_bool(rng, share))
        store_element(tensor.dtype(), tensor.data(), i, kSpecial[rng() % kSpecial.size()]);
  }
  const Contents fast = run_graph(t.graph, arguments, {cpu_kernels()});
  const Contents plain = run_graph(t.graph, arguments, {reference_kernels()});
  for (ValueId v : results_of(t)) {
    const auto a = values_of(t.graph, fast, v), b = values_of(t.graph, plain, v);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const bool finite = std::isfinite(a[i]) && std::isfinite(b[i]);
      const bool allowed = !c.more_nan.empty() && std::isnan(a[i]);
      ASSERT_TRUE(finite || allowed || a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
          << "value " << v << ", element " << i << ": " << a[i] << ", not " << b[i];
    }
  }
}

TEST_P(OpCaseTest, GradientMatchesFiniteDifferences) {
  const OpCase& c = GetParam();
  const TracedCase t = trace_case(c, DType::f64, true);
  if (!c.no_gradient.empty()) {
    EXPECT_TRUE(t.gradients.empty());
    EXPECT_TRUE(refuses_derivative(t.graph)) << "has a derivative, though the case says: " << c.no_gradient;
    return;
  }
  if (!c.no_finite_difference.empty()) return;
  auto rng = generator(c.name + "/gradient");
  auto arguments = draw_arguments(c, t, rng);
  const Contents at_point = run_graph(t.graph, arguments, {reference_kernels()});
  const TracedCase forward = trace_case(c, DType::f64, false);
  const auto loss = [&] {  // the sum of outputs times cotangents
    const Contents r = run_graph(forward.graph, as_types_of(forward, {{}, t.inputs, {}, {}, {}}, arguments),
                                 {reference_kernels()});
    long double sum = 0;
    std::size_t cotangent = 0;
    for (ValueId v : forward.outputs) {
      if (!is_floating(forward.graph.type(v).dtype)) continue;
      const auto values = values_of(forward.graph, r, v);
      const auto weights = arguments.at(t.cotangents[cotangent++]).values();
      for (std::size_t i = 0; i < values.size(); ++i) sum += static_cast<long double>(values[i]) * weights[i];
    }
    return static_cast<double>(sum);
  };
  std::size_t g = 0;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const TensorType& type = t.graph.type(t.inputs[i]);
    if (!c.inputs[i].differentiable || !is_floating(type.dtype)) continue;
    const ValueId gradient = t.gradients.at(g++);
    const auto values = gradient < 0 ? std::vector<double>(static_cast<std::size_t>(type.elements()), 0.0)
                                     : values_of(t.graph, at_point, gradient);
    std::vector<std::size_t> picks(values.size());
    for (std::size_t p = 0; p < picks.size(); ++p) picks[p] = p;
    std::shuffle(picks.begin(), picks.end(), rng);
    picks.resize(std::min<std::size_t>(picks.size(), 24));
    double* data = arguments.at(t.inputs[i]).as<double>();
    for (std::size_t p : picks) {
      const double x = data[p];
      data[p] = x + kStep;
      const double above = loss();
      data[p] = x - kStep;
      const double below = loss();
      data[p] = x;
      const double difference = (above - below) / (2 * kStep);
      EXPECT_NEAR(values[p], difference, 1e-5 + 1e-3 * std::fabs(difference))
          << "input " << i << ", element " << p;
    }
  }
  EXPECT_GT(g, 0u) << "no input is differentiable: say why in no_gradient";
}

TEST_P(OpCaseTest, VmapMatchesALoopOverModels) {
  const OpCase& c = GetParam();
  const TracedCase t = trace_case(c, DType::f32, true);
  if (!c.no_vmap.empty()) {
    EXPECT_THROW(vmap_case(t, std::vector<bool>(t.inputs.size(), true), kModels), NoRule);
    return;
  }
  auto rng = generator(c.name + "/batch");
  std::vector<std::map<ValueId, Tensor>> separate;
  for (int m = 0; m < kModels; ++m) separate.push_back(draw_arguments(c, t, rng));
  for (const auto& mask : vmap_masks(t.inputs.size())) {
    auto arguments = separate;
    for (std::size_t i = 0; i < mask.size(); ++i)
      if (!mask[i])
        for (auto& a : arguments) a[t.inputs[i]] = separate[0].at(t.inputs[i]);
    const VmappedCase mapped = vmap_case(t, mask, kModels);
    const Contents together = run_graph(mapped.graph, stack_arguments(mapped, arguments),
                                        {.kernels = cpu_kernels(), .check_in_place = true});
    for (int m = 0; m < kModels; ++m) {
      const Contents alone = run_graph(t.graph, arguments[static_cast<std::size_t>(m)], {cpu_kernels()});
      for (ValueId v : results_of(t)) {
        const TensorType& type = t.graph.type(v);
        const auto& [value, has_models] = mapped.values.at(v);
        TensorType expected = type;
        if (has_models) expected.shape.insert(expected.shape.begin(), kModels);
        ASSERT_EQ(mapped.graph.type(value), expected) << "mapped inputs " << mask_name(mask);
        const std::byte* data = together.at(value).data() + (has_models ? m * type.bytes() : 0);
        const std::vector<std::byte> mine(data, data + type.bytes());
        EXPECT_EQ(mine, alone.at(v)) << "model " << m << ", mapped inputs " << mask_name(mask);
      }
    }
  }
}

TEST_P(OpCaseTest, RepeatsBitwiseForAnyMemoryContents) {
  const OpCase& c = GetParam();
  auto rng = generator(c.name + "/repeat");
  const TracedCase t = trace_case(c, DType::f32, true);
  const auto arguments = draw_arguments(c, t, rng);
  const Contents first = run_graph(t.graph, arguments, {.kernels = cpu_kernels(), .poison = 0xff});
  EXPECT_EQ(first, run_graph(t.graph, arguments, {.kernels = cpu_kernels(), .poison = 0x3c}));
  const Contents plain = run_graph(t.graph, arguments, {.kernels = reference_kernels(), .poison = 0xff});
  EXPECT_EQ(plain, run_graph(t.graph, arguments, {.kernels = reference_kernels(), .poison = 0x3c}));
  if (!c.any_team) return;
  for (int threads : {1, 3})
    EXPECT_EQ(first, run_graph(t.graph, arguments, {.kernels = cpu_kernels(), .threads = threads}))
        << threads << " threads";
}

TEST_P(OpCaseTest, InPlaceGivesTheSameBits) {
  const OpCase& c = GetParam();
  auto rng = generator(c.name + "/in_place");
  for (DType precision : {DType::f32, DType::f64}) {
    const TracedCase t = trace_case(c, precision, true);
    const auto arguments = draw_arguments(c, t, rng);
    run_graph(t.graph, arguments, {.kernels = cpu_kernels(), .check_in_place = true});
    run_graph(t.graph, arguments, {.kernels = reference_kernels(), .check_in_place = true});
  }
}

}  // namespace tandem::testing
