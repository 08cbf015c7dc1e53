#include <tandem/ops/activation.h>

#include <cmath>
#include <numbers>

#include <tandem/ops/pointwise.h>

namespace tandem {
using namespace engine;
namespace {

using Code = PointwiseCode;

// Builds an expression of one input; `label` is its name for users.
class Expression {
 public:
  Expression(const Tensor& x, const char* label) : x_(x), label_(label) {}
  int x() { return builder_.input(0); }
  int number(double value) { return builder_.constant(value); }
  int operator()(Code code, int a, int b = -1, int c = -1) { return builder_.emit({code, a, b, c}); }
  Tensor value(int result) const {
    std::vector<int> inputs;
    return apply_pointwise(builder_.finish(result, inputs), x_.dtype(), {x_}, label_);
  }

 private:
  const Tensor& x_;
  const char* const label_;
  PointwiseBuilder builder_;
};

int hard_sigmoid_of(Expression& e) {
  const int six = e.number(6);  // the first operand of min, so that the gradient of x is 0 at 6
  return e(Code::mul, e(Code::min, six, e(Code::relu, e(Code::add, e.x(), e.number(3)))), e.number(1.0 / 6));
}

}  // namespace

Tensor gelu_tanh(const Tensor& x) {
  Expression e(x, "gelu_tanh");
  const int square = e(Code::mul, e.x(), e.x());
  const int factor = e(Code::add, e(Code::mul, square, e.number(0.044715)), e.number(1));
  const int inner = e(Code::mul, e(Code::mul, e.x(), factor), e.number(std::sqrt(2 / std::numbers::pi)));
  const int half = e(Code::mul, e.x(), e.number(0.5));
  return e.value(e(Code::mul, half, e(Code::add, e(Code::tanh, inner), e.number(1))));
}

Tensor leaky_relu(const Tensor& x, double slope) {
  Expression e(x, "leaky_relu");
  const int positive = e(Code::gt, e.x(), e.number(0));
  return e.value(e(Code::where, positive, e.x(), e(Code::mul, e.x(), e.number(slope))));
}

Tensor silu(const Tensor& x) {
  Expression e(x, "silu");
  return e.value(e(Code::mul, e.x(), e(Code::sigmoid, e.x())));
}

Tensor elu(const Tensor& x, double alpha) {
  Expression e(x, "elu");
  const int unit = e(Code::elu, e.x());
  if (alpha == 1) return e.value(unit);
  return e.value(e(Code::where, e(Code::gt, e.x(), e.number(0)), e.x(), e(Code::mul, unit, e.number(alpha))));
}
Tensor selu(const Tensor& x) {
  Expression e(x, "selu");
  return e.value(e(Code::selu, e.x()));
}

Tensor hard_sigmoid(const Tensor& x) {
  Expression e(x, "hard_sigmoid");
  return e.value(hard_sigmoid_of(e));
}
Tensor hard_swish(const Tensor& x) {
  Expression e(x, "hard_swish");
  return e.value(e(Code::mul, e.x(), hard_sigmoid_of(e)));
}

}  // namespace tandem
