#include <tandem/ops/pointwise_expression.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

using Code = PointwiseCode;

constexpr std::array<std::string_view, 32> kNames{
    "input", "constant", "cast", "neg",      "exp", "log",  "tanh",  "sqrt", "rsqrt", "sigmoid", "erf",
    "abs",   "relu",     "gelu", "softplus", "elu", "selu", "floor", "add",  "sub",   "mul",     "div",
    "max",   "min",      "pow",  "eq",       "ne",  "lt",   "le",    "gt",   "ge",    "where"};

static_assert(kNames.size() == static_cast<std::size_t>(Code::where) + 1 && kNames.back() == "where");

// Cost more than reading an element from memory.
constexpr std::array kExpensive{Code::exp,  Code::log,      Code::tanh, Code::sigmoid, Code::erf,
                                Code::gelu, Code::softplus, Code::elu,  Code::selu,    Code::pow};

// Writes derivative rules. All registers in this class are those of the derivative's expression.
class Derivative {
 public:
  explicit Derivative(PointwiseBuilder& to) : to_(to) {}

  // Returns the gradients that a term of value `y` and gradient `g` adds to its operands a, b, c; −1: none.
  std::array<int, 3> rule(const PointwiseTerm& i, std::array<int, 3> x, int y, int g) {
    const int a = x[0], b = x[1];
    switch (i.code) {
      case Code::cast: return {g, -1, -1};
      case Code::neg: return {neg(g), -1, -1};
      case Code::exp: return {mul(g, y), -1, -1};
      case Code::log: return {div(g, a), -1, -1};
      case Code::tanh: return {mul(g, sub(one(), mul(y, y))), -1, -1};
      case Code::sqrt: return {div(mul(g, number(0.5)), y), -1, -1};
      case Code::rsqrt: return {mul(mul(g, number(-0.5)), mul(y, mul(y, y))), -1, -1};
      case Code::sigmoid: return {mul(g, mul(y, sub(one(), y))), -1, -1};
      case Code::erf: return {mul(g, mul(number(2 * std::numbers::inv_sqrtpi), exp(neg(mul(a, a))))), -1, -1};
      case Code::abs: return {where(gt(a, zero()), g, where(lt(a, zero()), neg(g), zero())), -1, -1};
      case Code::relu: return {where(le(y, zero()), zero(), g), -1, -1};  // a NaN's gradient is g
      case Code::gelu: return {mul(g, gelu_slope(a)), -1, -1};
      case Code::softplus: return {mul(g, to_.emit({Code::sigmoid, a})), -1, -1};
      case Code::elu: return {mul(g, decay(a)), -1, -1};
      case Code::selu: return {mul(g, selu_slope(a)), -1, -1};
      case Code::add: return {g, g, -1};
      case Code::sub: return {g, neg(g), -1};
      case Code::mul: return {mul(g, b), mul(g, a), -1};
      case Code::div: return {div(g, b), neg(div(mul(g, y), b)), -1};
      case Code::max: return choose(ge(a, b), g);
      case Code::min: return choose(le(a, b), g);
      case Code::pow: return power_rule(a, b, y, g);
      case Code::where: return {-1, where(a, g, zero()), where(a, zero(), g)};
      default: return {-1, -1, -1};  // comparisons, floor, inputs, constants
    }
  }

 private:
  int number(double v) { return to_.constant(v); }
  int zero() { return number(0); }
  int one() { return number(1); }
  int neg(int a) { return to_.emit({Code::neg, a}); }
  int exp(int a) { return to_.emit({Code::exp, a}); }
  int add(int a, int b) { return to_.emit({Code::add, a, b}); }
  int sub(int a, int b) { return to_.emit({Code::sub, a, b}); }
  int mul(int a, int b) { return to_.emit({Code::mul, a, b}); }
  int div(int a, int b) { return to_.emit({Code::div, a, b}); }
  int gt(int a, int b) { return to_.emit({Code::gt, a, b}); }
  int lt(int a, int b) { return to_.emit({Code::lt, a, b}); }
  int le(int a, int b) { return to_.emit({Code::le, a, b}); }
  int ge(int a, int b) { return to_.emit({Code::ge, a, b}); }
  int eq(int a, int b) { return to_.emit({Code::eq, a, b}); }
  int where(int a, int b, int c) { return to_.emit({Code::where, a, b, c}); }
  std::array<int, 3> choose(int first, int g) {
    return {where(first, g, zero()), where(first, zero(), g), -1};
  }

  // d xᵉ = e·xᵉ⁻¹ dx + xᵉ·log x de
  std::array<int, 3> power_rule(int base, int exponent, int y, int g) {
    const int less = to_.emit({Code::pow, base, sub(exponent, one())});
    const int by_base = where(eq(exponent, zero()), zero(), mul(g, mul(exponent, less)));
    const int both = mul(eq(base, zero()), ge(exponent, zero()));
    return {by_base, where(both, zero(), mul(g, mul(y, to_.emit({Code::log, base})))), -1};
  }

  // d/dx x·Φ(x) = Φ(x) + x·φ(x)
  int gelu_slope(int x) {
    const int scaled = mul(x, number(1 / std::numbers::sqrt2));
    const int cumulative = mul(number(0.5), add(one(), to_.emit({Code::erf, scaled})));
    const int density =
        mul(number(std::numbers::inv_sqrtpi / std::numbers::sqrt2), exp(mul(number(-0.5), mul(x, x))));
    return add(cumulative, mul(x, density));
  }

  // The slopes of elu and selu: differences from the value, which is near −1, would have few digits.
  int decay(int x) { return exp(to_.emit({Code::min, x, zero()})); }
  int selu_slope(int x) {
    return where(gt(x, zero()), number(kSeluScale), mul(number(kSeluScale * kSeluAlpha), decay(x)));
  }

  PointwiseBuilder& to_;
};

std::array<int*, 3> registers(PointwiseTerm& i) { return {&i.a, &i.b, &i.c}; }

PointwiseTerm renumbered(PointwiseTerm i, const std::vector<int>& to) {
  const auto all = registers(i);
  for (int k = 0; k < operands_of(i.code); ++k) {
    int& r = *all[static_cast<std::size_t>(k)];
    r = to[static_cast<std::size_t>(r)];
  }
  return i;
}

bool same(const PointwiseTerm& a, const PointwiseTerm& b) {  // tells −0 from 0
  return a == b && std::signbit(a.immediate) == std::signbit(b.immediate);
}

}  // namespace

std::string_view name_of(Code code) { return kNames.at(static_cast<std::size_t>(code)); }

std::vector<int> reads(const PointwiseTerm& i) {
  const std::array<int, 3> all{i.a, i.b, i.c};
  return {all.begin(), all.begin() + operands_of(i.code)};
}

int input_count(const PointwiseExpression& expression) {
  int count = 0;
  for (const auto& i : expression)
    if (i.code == Code::input) count = std::max(count, i.a + 1);
  return count;
}

void check(const PointwiseExpression& expression) {
  if (expression.empty()) throw Error("a pointwise expression needs at least one term");
  for (int r = 0; r < static_cast<int>(expression.size()); ++r) {
    const auto& i = expression[static_cast<std::size_t>(r)];
    for (int o : reads(i))
      if (o < 0 || o >= r)
        throw Error(fmt::format("pointwise expression {}: term {} reads register {}, which is not before it",
                                to_string(expression), r, o));
    if (i.code == Code::input && i.a < 0) throw Error("pointwise expression: a negative input number");
  }
}

bool stays_whole(const PointwiseExpression& expression) {
  const auto is_whole = [](const PointwiseTerm& i) { return i.immediate == std::trunc(i.immediate); };
  return std::ranges::all_of(expression, [&](const PointwiseTerm& i) {
    switch (i.code) {
      case Code::constant: return is_whole(i);
      case Code::pow: {
        const PointwiseTerm& exponent = expression[static_cast<std::size_t>(i.b)];
        return exponent.code == Code::constant && exponent.immediate >= 0;
      }
      case Code::div: return false;
      default:
        return operands_of(i.code) != 1 || i.code == Code::cast || i.code == Code::neg ||
               i.code == Code::abs || i.code == Code::relu || i.code == Code::floor;
    }
  });
}

std::int64_t expensive_terms(const PointwiseExpression& expression) {
  return std::ranges::count_if(expression,
                               [](const PointwiseTerm& i) { return contains(kExpensive, i.code); });
}

bool is_cheap(const PointwiseExpression& expression) { return expensive_terms(expression) == 0; }

std::string to_string(const PointwiseExpression& expression) {
  std::string text;
  for (const auto& i : expression) {
    if (!text.empty()) text += ", ";
    switch (i.code) {
      case Code::input: text += fmt::format("in{}", i.a); break;
      case Code::constant: text += fmt::format("{}", i.immediate); break;
      case Code::cast: text += fmt::format("cast({}, {})", i.a, name_of(static_cast<DType>(i.b))); break;
      default:
        text += fmt::format("{}({}", name_of(i.code), i.a);
        if (operands_of(i.code) > 1) text += fmt::format(", {}", i.b);
        if (operands_of(i.code) > 2) text += fmt::format(", {}", i.c);
        text += ")";
    }
  }
  return text;
}

int PointwiseBuilder::input(int index) { return push({Code::input, index}); }
int PointwiseBuilder::constant(double value) { return push({Code::constant, -1, -1, -1, value}); }
int PointwiseBuilder::cast(int register_, DType dtype) {
  return push({Code::cast, register_, static_cast<int>(dtype)});
}
int PointwiseBuilder::emit(const PointwiseTerm& instruction) { return push(instruction); }

int PointwiseBuilder::append(const PointwiseExpression& expression, const std::vector<int>& inputs) {
  std::vector<int> to;
  for (const auto& i : expression)
    to.push_back(i.code == Code::input ? inputs.at(static_cast<std::size_t>(i.a)) : push(renumbered(i, to)));
  return to.back();
}

int PointwiseBuilder::push(const PointwiseTerm& instruction) {
  const auto found = std::find_if(expression_.begin(), expression_.end(),
                                  [&](const auto& i) { return same(i, instruction); });
  const auto index = static_cast<int>(found - expression_.begin());
  if (found == expression_.end()) expression_.push_back(instruction);
  return index;
}

PointwiseExpression PointwiseBuilder::finish(int result, std::vector<int>& inputs) const {
  std::vector<bool> needed(expression_.size(), false);
  needed[static_cast<std::size_t>(result)] = true;
  inputs.clear();
  for (std::size_t r = expression_.size(); r-- > 0;) {
    if (!needed[r]) continue;
    for (int o : reads(expression_[r])) needed[static_cast<std::size_t>(o)] = true;
    if (expression_[r].code == Code::input) inputs.push_back(expression_[r].a);
  }
  std::sort(inputs.begin(), inputs.end());

  PointwiseBuilder packed;
  std::vector<int> to(expression_.size(), -1);
  for (std::size_t r = 0; r <= static_cast<std::size_t>(result); ++r) {
    if (!needed[r]) continue;
    PointwiseTerm i = renumbered(expression_[r], to);
    if (i.code == Code::input)
      i.a = static_cast<int>(std::find(inputs.begin(), inputs.end(), i.a) - inputs.begin());
    to[r] = packed.push(i);
  }
  return packed.expression_;
}

bool differentiate(const PointwiseExpression& expression, int input, PointwiseBuilder& builder, int& result) {
  const Code last = expression.back().code;
  const bool by_output = last != Code::elu && last != Code::selu;
  const int inputs = input_count(expression);
  std::vector<int> value;     // of each register, in the builder
  std::vector<bool> depends;  // on the input
  for (const auto& i : expression) {
    if (value.size() + 1 == expression.size() && by_output)
      value.push_back(builder.input(inputs));  // the output
    else
      value.push_back(i.code == Code::input ? builder.input(i.a) : builder.emit(renumbered(i, value)));
    bool any = i.code == Code::input && i.a == input;
    for (int o : reads(i)) any = any || depends[static_cast<std::size_t>(o)];
    depends.push_back(any);
  }

  std::vector<int> gradient(expression.size(), -1);
  gradient.back() = builder.input(inputs + 1);
  const auto accumulate = [&](int& sum, int g) { sum = sum < 0 ? g : builder.emit({Code::add, sum, g}); };
  Derivative derivative(builder);
  result = -1;
  for (std::size_t r = expression.size(); r-- > 0;) {
    const auto& i = expression[r];
    if (gradient[r] < 0 || !depends[r]) continue;
    if (i.code == Code::input) accumulate(result, gradient[r]);
    const std::vector<int> operands = reads(i);
    std::array<int, 3> x{-1, -1, -1};
    for (std::size_t k = 0; k < operands.size(); ++k) x[k] = value[static_cast<std::size_t>(operands[k])];
    const auto contributions = derivative.rule(i, x, value[r], gradient[r]);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const auto o = static_cast<std::size_t>(operands[k]);
      if (contributions[k] >= 0 && depends[o]) accumulate(gradient[o], contributions[k]);
    }
  }
  return result >= 0;
}

}  // namespace tandem::engine
