#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/base/types.h>

namespace tandem::engine {

/// What one instruction of a pointwise expression computes. Comparisons give 1 or 0.
enum class PointwiseCode : std::uint8_t {
  input,     ///< element of input number `a`
  constant,  ///< `immediate`
  cast,      ///< register `a` rounded as a store in dtype number `b` would: `b` is a DType, not a register
  neg,
  exp,
  log,
  tanh,
  sqrt,
  rsqrt,
  sigmoid,
  erf,
  abs,
  relu,
  gelu,      ///< x·Φ(x) by the error function
  softplus,  ///< log(1 + exp x), without overflow
  elu,       ///< `a` > 0 ? `a` : exp(a) − 1, with the small differences that exp loses
  selu,      ///< λ·(`a` > 0 ? `a` : α·(exp(a) − 1)): kSeluScale, kSeluAlpha
  floor,
  add,
  sub,
  mul,
  div,
  max,
  min,  ///< NaN where either operand is
  pow,  ///< as in <cmath>
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  where,  ///< `a` ≠ 0 ? `b` : `c`
};
inline constexpr double kSeluScale = 1.0507009873554804934, kSeluAlpha = 1.6732632423543772848;

std::string_view name_of(PointwiseCode code);
/// How many of `a`, `b`, `c` are registers.
constexpr int operands_of(PointwiseCode code) {
  if (code <= PointwiseCode::constant) return 0;
  return code < PointwiseCode::add ? 1 : code < PointwiseCode::where ? 2 : 3;
}

/// Instruction i writes register i, and reads registers before it.
struct PointwiseTerm {
  PointwiseCode code;
  int a = -1;
  int b = -1;
  int c = -1;
  double immediate = 0;
  bool operator==(const PointwiseTerm&) const = default;
};

/// The registers an instruction reads.
std::vector<int> reads(const PointwiseTerm& instruction);

/// A straight-line expression; its value is its last register.
using PointwiseExpression = std::vector<PointwiseTerm>;

/// 1 + the highest input number.
int input_count(const PointwiseExpression& expression);
/// Throws Error on an operand that does not precede its instruction.
void check(const PointwiseExpression& expression);
/// Does an element cost no more than to read it from memory? So without exponentials and the like.
bool is_cheap(const PointwiseExpression& expression);
/// Are the values of whole numbers whole? So without quotients, roots, exponentials and fractions.
bool stays_whole(const PointwiseExpression& expression);
/// "in0, 2, mul(0, 1)"
std::string to_string(const PointwiseExpression& expression);

/// Writes a expression instruction by instruction; an instruction it has already is not repeated.
class PointwiseBuilder {
 public:
  int input(int index);
  int constant(double value);
  int cast(int register_, DType dtype);
  int emit(const PointwiseTerm& instruction);
  /// Appends `expression` with its inputs replaced by registers of this one; gives the register of its value.
  int append(const PointwiseExpression& expression, const std::vector<int>& inputs);

  /// The expression that ends in register `result`, without what that does not need. `inputs` receives the
  /// input numbers that are left: input i of the expression is what was input `inputs[i]`.
  PointwiseExpression finish(int result, std::vector<int>& inputs) const;

 private:
  int push(const PointwiseTerm& instruction);
  PointwiseExpression expression_;
};

/// The derivative of a expression: one that gives the gradient of input `input` from the expression's inputs,
/// then its output (input number n), then the output's gradient (n+1). Returns false where it is zero
/// everywhere. Rules use the output rather than an input where they can (relu, tanh, exp, sigmoid, sqrt, elu,
/// selu), so that the input's memory is free; but the slopes of elu and selu, differences from it, not where
/// it is `rounded` to fewer digits than arithmetic has. At a kink: relu and abs give 0, of equal operands max
/// and min take the first. floor has none. pow by its base is 0 where the exponent is, by its exponent where
/// the base is and the exponent is not negative: as PyTorch.
bool differentiate(const PointwiseExpression& expression, int input, bool rounded, PointwiseBuilder& builder,
                   int& result);

}  // namespace tandem::engine
