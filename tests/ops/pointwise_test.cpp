// Properties of pointwise expressions that the op cases do not check.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/activation.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/cpu/vector_math.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

#include "expect_error.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

using Code = PointwiseCode;

Tensor random_tensor(const Shape& shape, std::mt19937_64& rng) {
  Tensor t = Tensor::empty({DType::f32, shape});
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.as<float>()[i] = static_cast<float>(draw_real(rng, 0.2, 2));
  return t;
}

std::vector<std::byte> bytes(const Tensor& t) {
  const auto* data = static_cast<const std::byte*>(t.data());
  return {data, data + t.type().bytes()};
}

// A chain of random operations, computed op by op and composed into one expression.
struct Chain {
  std::vector<Tensor> tensors;  // the result of each operation, op by op
  std::vector<int> registers;   // the same in the builder
  PointwiseBuilder builder;

  void add_input(const Tensor& x) {
    registers.push_back(builder.input(static_cast<int>(tensors.size())));
    tensors.push_back(x);
  }
  void apply(const PointwiseExpression& program, DType dtype, const std::vector<int>& operands) {
    Tensors inputs;
    std::vector<int> from;
    for (int o : operands) {
      inputs.push_back(tensors[static_cast<std::size_t>(o)]);
      from.push_back(registers[static_cast<std::size_t>(o)]);
    }
    tensors.push_back(apply_op1(std::make_shared<PointwiseOp>(program, dtype), inputs));
    int result = builder.append(program, from);
    if (dtype != DType::f32) result = builder.cast(result, dtype);  // rounds as the op's output does
    registers.push_back(result);
  }
  int pick(std::mt19937_64& rng) const { return draw_int(rng, 0, static_cast<int>(tensors.size()) - 1); }
};

TEST(PointwiseTest, AComposedExpressionEqualsItsPartsBitwise) {
  auto rng = generator("composed");
  for (int round = 0; round < 60; ++round) {
    Chain chain;
    const Shape shape{draw_int(rng, 1, 5), draw_int(rng, 1, 40), draw_int(rng, 1, 30)};
    for (const Shape& s : {shape, {shape[2]}, {shape[1], 1}, {}, {shape[0], 1, shape[2]}})
      chain.add_input(random_tensor(s, rng));
    const auto inputs = chain.tensors;
    for (int step = 0; step < 8; ++step) {
      const auto code =
          static_cast<Code>(draw_int(rng, static_cast<int>(Code::neg), static_cast<int>(Code::where)));
      PointwiseExpression program;
      std::vector<int> operands;
      for (int k = 0; k < operands_of(code); ++k) {
        program.push_back({Code::input, k});
        operands.push_back(chain.pick(rng));
      }
      program.push_back({code, 0, operands_of(code) > 1 ? 1 : -1, operands_of(code) > 2 ? 2 : -1});
      chain.apply(program, draw_bool(rng, 0.3) ? DType::bf16 : DType::f32, operands);
    }
    std::vector<int> used;
    const PointwiseExpression fused = chain.builder.finish(chain.registers.back(), used);
    Tensors operands;
    for (int k : used) operands.push_back(inputs[static_cast<std::size_t>(k)]);
    const Tensor result =
        apply_op1(std::make_shared<PointwiseOp>(fused, chain.tensors.back().dtype()), operands);
    ASSERT_EQ(result.type(), chain.tensors.back().type()) << to_string(fused);
    ASSERT_EQ(bytes(result), bytes(chain.tensors.back())) << to_string(fused) << " on " << to_string(shape);
  }
}

TEST(PointwiseTest, ExpressionsWithMoreRegistersThanSlotsStillRun) {
  PointwiseBuilder builder;
  std::vector<int> constants;
  for (int i = 0; i < 40; ++i) constants.push_back(builder.constant(i + 0.5));
  int sum = builder.input(0);
  for (int c : constants) sum = builder.emit({Code::add, sum, c});
  std::vector<int> used;
  const Tensor y = apply_op1(std::make_shared<PointwiseOp>(builder.finish(sum, used), DType::f32),
                             {Tensor::full({DType::f32, {3}}, 1)});
  EXPECT_EQ(y.values(), std::vector<double>(3, 801));
}

TEST(PointwiseTest, GradientsOfActivationsReadTheOutputNotTheInput) {
  for (auto* f : {relu, tanh, sigmoid, exp, sqrt}) {
    Graph graph;
    Trace trace(graph);
    const ValueId x = graph.add_value({DType::f32, {3}}), g = graph.add_value({DType::f32, {3}});
    const Tensor y = f(trace.tensor(x));
    const Node node = graph.node(0);
    node.op->vjp({{trace.tensor(x)}, {y}, {trace.tensor(g)}, {true}});
    ASSERT_EQ(graph.nodes().size(), 2u);
    const auto& inputs = graph.node(1).inputs;
    EXPECT_EQ(std::count(inputs.begin(), inputs.end(), x), 0) << node.op->attributes();
  }
}

TEST(PointwiseTest, ShapesThatDoNotBroadcastAreNamed) {
  const Tensor a = Tensor::zeros({DType::f32, {3, 4}}), b = Tensor::zeros({DType::f32, {5}});
  const Scope scope("layer1");
  expect_error([&] { add(a, b); }, {"layer1", "[3, 4]", "[5]", "extents 5 and 4"});
}

TEST(PointwiseTest, MalformedExpressionsAreRefused) {
  EXPECT_THROW(PointwiseOp({}, DType::f32), Error);
  EXPECT_THROW(PointwiseOp({{Code::input, 0}, {Code::add, 0, 1}}, DType::f32), Error);
  EXPECT_THROW(PointwiseOp({{Code::input, 0}, {Code::neg, -1}}, DType::f32), Error);
}

TEST(PointwiseTest, NaNPropagates) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = Tensor::from({nan, 1}, {2}, dtype), y = Tensor::from({1, nan}, {2}, dtype);
    for (const Tensor& t :
         {relu(x), maximum(x, 0.0), minimum(x, 0.0), clamp(x, -1, 1), elu(x), hard_swish(x), softplus(x)})
      EXPECT_TRUE(std::isnan(t.values()[0]));
    for (const Tensor& t : {maximum(x, y), minimum(x, y), add(x, y)})
      for (double v : t.values()) EXPECT_TRUE(std::isnan(v));
    EXPECT_EQ(equal(x, x).values(), (std::vector<double>{0, 1}));
  }
}

// If the slopes were computed from rounded values, the differences would have no correct digits.
TEST(PointwiseTest, SlopesOfEluAndSeluHaveFullPrecision) {
  for (const auto& [dtype, precision] :
       {std::pair(DType::bf16, 1.0 / 128), std::pair(DType::f32, 1e-6), std::pair(DType::f64, 1e-14)})
    for (const double v : {-0.5, -3.0, -6.0, -8.0, -20.0, -40.0, 0.0, 5.0, 200.0})
      for (const bool scaled : {false, true}) {
        Tensor x = Tensor::from({v}, {1}, dtype);
        x.requires_grad();
        sum(scaled ? selu(x) : elu(x)).backward();
        const double slope = (v > 0 ? 1 : std::exp(v)) * (scaled ? kSeluScale * (v > 0 ? 1 : kSeluAlpha) : 1);
        EXPECT_NEAR(slope, x.grad().values()[0], slope * precision) << v << " in " << name_of(dtype);
      }
}

TEST(PointwiseTest, ComparisonsTakeConstantsAndHaveOperators) {
  using Values = std::vector<double>;
  const Tensor x = Tensor::from({0.1, -1, 2}, {3}), y = Tensor::from({0.1, 0, 1}, {3});
  EXPECT_EQ((Values{1, 0, 0}), equal(x, 0.1).values()) << "the constant is rounded to f32";
  EXPECT_EQ((Values{0, 1, 1}), not_equal(x, 0.1).values());
  EXPECT_EQ((Values{1, 0, 1}), (x > 0).values());
  EXPECT_EQ((Values{0, 0, 1}), (x > y).values());
  EXPECT_EQ((Values{1, 0, 1}), (x >= y).values());
  EXPECT_EQ((Values{1, 1, 0}), (x <= 0.1).values());
  EXPECT_EQ((Values{0, 1, 0}), (x < y).values());
  const Tensor ids = Tensor::from({0, 3, 7}, {3}, DType::i32);
  EXPECT_EQ(DType::b8, (ids >= 3).dtype());
  EXPECT_EQ((Values{0, 1, 1}), (ids >= 3).values());
  EXPECT_THROW(ids > 2.5, Error);
  EXPECT_EQ((Values{1, 0, 0}), equal(Tensor::from({0, 1, 1}, {3}, DType::b8), 0).values());
}

TEST(PointwiseTest, GradientOfReluStopsAtNegativesOnly) {
  Tensor x = Tensor::from({-1, 0, 1, NAN}, {4});
  x.requires_grad();
  sum(relu(x)).backward();
  EXPECT_EQ(x.grad().values(), (std::vector<double>{0, 0, 1, 1}));
}

TEST(PointwiseTest, CastsRoundTruncateAndSaturate) {
  const Tensor x = Tensor::from({2.75, -2.75, 300, -300, 1e20, -1e20, NAN, 0}, {8});
  EXPECT_EQ(cast(x, DType::i32).values(),
            (std::vector<double>{2, -2, 300, -300, 2147483647, -2147483648.0, 0, 0}));
  EXPECT_EQ(cast(x, DType::u8).values(), (std::vector<double>{2, 0, 255, 0, 255, 0, 0, 0}));
  EXPECT_EQ(cast(x, DType::b8).values(), (std::vector<double>{1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(cast(Tensor::from({1.00390625, 1.01171875}, {2}), DType::bf16).values(),
            (std::vector<double>{1, 1.015625}));
  const Tensor large = Tensor::from({9007199254740991.0}, {1}, DType::i64);
  EXPECT_EQ(add(large, Tensor::zeros({DType::i64, {}})).values(), large.values());
}

TEST(PointwiseTest, IntegersStayWholeOrAreRefused) {
  const Tensor i = Tensor::from({1, 2, -3}, {3}, DType::i32), u = Tensor::from({0, 100, 255}, {3}, DType::u8);
  EXPECT_EQ((2 * i + 1).values(), (std::vector<double>{3, 5, -5}));
  EXPECT_EQ(pow(i, 2.0).values(), (std::vector<double>{1, 4, 9}));
  EXPECT_EQ(maximum(abs(i), 2.0).values(), (std::vector<double>{2, 2, 3}));
  EXPECT_EQ((u + u).values(), (std::vector<double>{0, 200, 255}));  // saturates
  EXPECT_EQ((i * Tensor::from({0.5}, {})).values(), (std::vector<double>{0.5, 1, -1.5}));
  for (const auto& f : std::vector<std::function<Tensor()>>{
           [&] { return i * 0.5; }, [&] { return i / 2; }, [&] { return i / (i + 4); },
           [&] { return u / 255; }, [&] { return 1 / i; }, [&] { return exp(i); }, [&] { return sqrt(u); },
           [&] { return pow(i, 0.5); }, [&] { return pow(i, -1); }, [&] { return pow(i, i); },
           [&] { return clamp(i, 1.5, 2); }, [&] { return where(i, i, 0.5); }, [&] { return silu(i); },
           [&] { return hard_swish(i); }})
    expect_error([&] { f(); }, {"can have a fraction", "cast to a floating dtype"});
  for (const double value : {0.5, 3e9, -3e9, 1e300, static_cast<double>(NAN)})
    expect_error([&] { Tensor::from({value}, {1}, DType::i32); }, {"does not fit the dtype i32"});
  EXPECT_THROW(Tensor::full({DType::u8, {2}}, -1), Error);
  EXPECT_EQ(Tensor::from({-0x1p63}, {1}, DType::i64).item(), -0x1p63);
  EXPECT_THROW(Tensor::from({0x1p63}, {1}, DType::i64), Error);
}

TEST(PointwiseTest, MixedDtypesGiveTheWider) {
  const auto wide = [](DType a, DType b) {
    return add(Tensor::zeros({a, {2}}), Tensor::zeros({b, {2}})).dtype();
  };
  EXPECT_EQ(wide(DType::f32, DType::bf16), DType::f32);
  EXPECT_EQ(wide(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(wide(DType::bf16, DType::i64), DType::bf16);
  EXPECT_EQ(wide(DType::f32, DType::f64), DType::f64);
  EXPECT_EQ(wide(DType::b8, DType::i32), DType::i32);
}

TEST(PointwiseTest, BoolsCountAsZeroAndOne) {
  const Tensor x = Tensor::from({1, 0}, {2}, DType::b8), y = Tensor::from({1, 1}, {2}, DType::b8);
  const auto is = [](const Tensor& t, DType dtype, std::vector<double> values) {
    return t.dtype() == dtype && t.values() == values;
  };
  EXPECT_TRUE(is(4 * x, DType::i32, {4, 0}));
  EXPECT_TRUE(is(x + 1, DType::i32, {2, 1}));
  EXPECT_TRUE(is(1 - x, DType::i32, {0, 1}));
  EXPECT_TRUE(is(x + y, DType::b8, {1, 1}));
  EXPECT_TRUE(is(x * y, DType::b8, {1, 0}));
  EXPECT_TRUE(is(x * Tensor::from({0.5, 2}, {2}), DType::f32, {0.5, 0}));
  expect_error([&] { x - y; }, {"sub: bool[2] has no numbers", "cast"});
  expect_error([&] { -x; }, {"neg: bool[2] has no numbers"});
  expect_error([&] { 0.5 * x; }, {"can have a fraction"});
}

TEST(PointwiseTest, EmptyTensorsNeedNoWork) {
  EXPECT_EQ(relu(Tensor::zeros({DType::f32, {0, 3}})).shape(), (Shape{0, 3}));
  EXPECT_EQ(add(Tensor::zeros({DType::f32, {0, 3}}), Tensor::zeros({DType::f32, {3}})).shape(),
            (Shape{0, 3}));
}

// Distance from the nearest float, in units in the last place.
double ulps(float value, double exact) {
  if (std::isnan(exact)) return std::isnan(value) ? 0 : INFINITY;
  const auto rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || rounded == value) return rounded == value ? 0 : INFINITY;
  int exponent;
  std::frexp(rounded, &exponent);
  return std::fabs(value - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST(VectorMathTest, IsWithinTwoUnitsInTheLastPlace) {
  auto rng = generator("ulps");
  const auto check = [&](const char* name, float (*fast)(float), double (*exact)(double), float x) {
    EXPECT_LE(ulps(fast(x), exact(x)), 2.0) << name << "(" << x << ") = " << fast(x);
  };
  for (int i = 0; i < 400000; ++i) {
    const auto x = i % 2 ? std::bit_cast<float>(static_cast<std::uint32_t>(rng()))  // every exponent, and NaN
                         : static_cast<float>(draw_real(rng, -8, 8));
    check("exp", VectorMath::exp, std::exp, x);
    check("log", VectorMath::log, std::log, x);
    check("tanh", VectorMath::tanh, std::tanh, x);
    check("erf", VectorMath::erf, std::erf, x);
    if (x >= 0 && x <= 1) check("log1p", VectorMath::log1p, std::log1p, x);
    if (x <= 0) check("expm1", VectorMath::expm1, std::expm1, x);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x = -0.5f; x < -0x1p-126f; x *= 0.9f) check("expm1", VectorMath::expm1, std::expm1, x);
  for (float x : {0.0f, -0.0f, 1.0f, infinity, -infinity, 88.73f, -103.98f, 1e-45f, 3.4e38f, -3.4e38f}) {
    check("exp", VectorMath::exp, std::exp, x);
    check("log", VectorMath::log, std::log, x);
    check("tanh", VectorMath::tanh, std::tanh, x);
    check("erf", VectorMath::erf, std::erf, x);
  }
}

TEST(VectorMathTest, PowIsWithinOneUnitInTheLastPlaceAndHandlesSpecialCases) {
  auto rng = generator("pow");
  const auto check = [](float x, float e) {
    const double exact = std::pow(static_cast<double>(x), static_cast<double>(e));
    EXPECT_LE(ulps(VectorMath::pow(x, e), exact), 1.0) << x << " to the power " << e;
    EXPECT_TRUE(std::isnan(exact) || std::signbit(VectorMath::pow(x, e)) == std::signbit(exact))
        << x << " to the power " << e;
  };
  for (int i = 0; i < 400000; ++i) {
    const auto bits = [&] { return std::bit_cast<float>(static_cast<std::uint32_t>(rng())); };
    const auto real = [&](double low, double high) { return static_cast<float>(draw_real(rng, low, high)); };
    check(bits(), bits());
    check(real(0, 20), real(-20, 20));
    check(real(-20, 20), static_cast<float>(draw_int(rng, -9, 9)));
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                  kLargest = std::numeric_limits<float>::max();
  const std::vector<float> special{0.0f,  -0.0f,     1.0f,       -1.0f,    0.5f,      -0.5f,
                                   2.0f,  -2.0f,     3.0f,       -3.0f,    1e-45f,    2.5f,
                                   -2.5f, kInfinity, -kInfinity, kLargest, -kLargest, 16777215.0f};
  for (float x : special)
    for (float e : special) check(x, e);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float x : special) {
    EXPECT_EQ(std::isnan(VectorMath::pow(x, nan)), x != 1) << x;
    EXPECT_EQ(std::isnan(VectorMath::pow(nan, x)), x != 0) << x;
  }
}

// PyTorch's derivatives at kinks, which finite differences cannot check.
TEST(PointwiseTest, GradientsAtKinksAreAsDocumented) {
  const auto gradients = [](const std::vector<double>& at, const auto& function) {
    Tensor x = Tensor::from(at, {static_cast<std::int64_t>(at.size())}, DType::f64);
    x.requires_grad();
    sum(function(x)).backward();
    return x.grad().values();
  };
  using V = std::vector<double>;
  EXPECT_EQ(gradients({0}, [](const Tensor& x) { return elu(x, 1.5); }), V{1.5});
  EXPECT_EQ(gradients({-3, 3}, [](const Tensor& x) { return hard_sigmoid(x); }), (V{0, 0}));
  EXPECT_EQ(gradients({-3, 3}, [](const Tensor& x) { return hard_swish(x); }), (V{0, 1}));
  EXPECT_EQ(gradients({-1, 2, 1.9, 2.1}, [](const Tensor& x) { return clamp(x, -1, 2); }), (V{0, 0, 1, 0}));
  EXPECT_EQ(gradients({1}, [](const Tensor& x) { return maximum(x, 1.0); }), V{0});
  EXPECT_EQ(gradients({1}, [](const Tensor& x) { return minimum(x, 1.0); }), V{0});
  EXPECT_EQ(gradients({0}, [](const Tensor& x) { return softplus(x); }), V{0.5});
  EXPECT_EQ(gradients({0, -2, INFINITY}, [](const Tensor& x) { return pow(x, 0); }), (V{0, 0, 0}));
  EXPECT_EQ(gradients({0, 2},
                      [](const Tensor& e) {
                        return pow(Tensor::zeros({DType::f64, {2}}), e);
                      }),
            (V{0, 0}));
}

TEST(PointwiseTest, ClampAppliesItsLowerBoundFirst) {
  EXPECT_THROW(clamp(Tensor::zeros({DType::f32, {2}}), 1, 0), Error);
  EXPECT_THROW(clamp(Tensor::zeros({DType::f32, {2}}), NAN, 0), Error);
}

// Plans, messages, and timelines use these names.
TEST(PointwiseTest, ActivationsHaveTheirCommonNames) {
  Graph g;
  {
    Trace trace(g);
    const Tensor x = trace.input("x", {DType::f32, {4}});
    silu(x), elu(x), selu(x), hard_sigmoid(x), hard_swish(x), relu(x);
  }
  std::vector<std::string> labels;
  for (const Node& n : g.nodes()) labels.push_back(n.op->label());
  EXPECT_EQ((std::vector<std::string>{"silu", "elu", "selu", "hard_sigmoid", "hard_swish", "relu"}),
            std::vector<std::string>(labels.begin() + 1, labels.end()));
}

}  // namespace
}  // namespace tandem::testing
