#include <tandem/ops/activation.h>

#include <tandem/ops/pointwise.h>

namespace tandem {
namespace {

using Code = PointwiseCode;

// Writes an expression of one input, by the name that users know.
class Expression {
 public:
  Expression(const Tensor& x, const char* label) : x_(x), label_(label) {}
  int x() { return builder_.input(0); }
  int number(double value) { return builder_.constant(value); }
  int operator()(Code code, int a, int b = -1, int c = -1) { return builder_.emit({code, a, b, c}); }
  Tensor value(int result) const {
    std::vector<int> inputs;
    return apply_op1(std::make_shared<Pointwise>(builder_.finish(result, inputs), x_.dtype(), label_), {x_});
  }

 private:
  const Tensor& x_;
  const char* const label_;
  PointwiseBuilder builder_;
};

// scale·elu(x): the exponential sees nothing above 0, so that no infinity meets the derivative's 0.
Tensor scaled_elu(const Tensor& x, double scale, double alpha, const char* label) {
  Expression e(x, label);
  const int below = e(Code::min, e.x(), e.number(0));
  const int negative = e(Code::mul, e(Code::sub, e(Code::exp, below), e.number(1)), e.number(scale * alpha));
  const int positive = scale == 1 ? e.x() : e(Code::mul, e.x(), e.number(scale));
  return e.value(e(Code::where, e(Code::gt, e.x(), e.number(0)), positive, negative));
}

int hard_sigmoid_of(Expression& e) {
  const int six = e.number(6);  // first, so that it takes the gradient where both are 6
  return e(Code::mul, e(Code::min, six, e(Code::relu, e(Code::add, e.x(), e.number(3)))), e.number(1.0 / 6));
}

}  // namespace

Tensor silu(const Tensor& x) {
  Expression e(x, "silu");
  return e.value(e(Code::mul, e.x(), e(Code::sigmoid, e.x())));
}

Tensor elu(const Tensor& x, double alpha) { return scaled_elu(x, 1, alpha, "elu"); }
Tensor selu(const Tensor& x) { return scaled_elu(x, 1.0507009873554804934, 1.6732632423543772848, "selu"); }

Tensor hard_sigmoid(const Tensor& x) {
  Expression e(x, "hard_sigmoid");
  return e.value(hard_sigmoid_of(e));
}
Tensor hard_swish(const Tensor& x) {
  Expression e(x, "hard_swish");
  return e.value(e(Code::mul, e.x(), hard_sigmoid_of(e)));
}

}  // namespace tandem
