#include <tandem/ops/matmul.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;

std::string MatMulOp::attributes() const {
  return fmt::format("transpose_a={} transpose_b={}", int{transpose_a}, int{transpose_b});
}

MatMulSize engine::matmul_size(const MatMulOp& op, TypesView inputs) {
  if (inputs.size() != 2 && inputs.size() != 3)
    throw Error(fmt::format("takes a, b and optionally a bias, not {} inputs", inputs.size()));
  const TensorType &a = inputs[0], &b = inputs[1];
  if (!is_floating(a.dtype) || b.dtype != a.dtype)
    throw Error("a and b must have the same floating dtype; cast one of them");
  if (a.rank() < 2 || a.rank() != b.rank())
    throw Error("a and b need the same number of axes, two or more; reshape one of them");
  const auto end_a = a.shape.end(), end_b = b.shape.end();
  if (!std::equal(a.shape.begin(), end_a - 2, b.shape.begin()))
    throw Error("leading axes differ; broadcast one operand");
  MatMulSize s{1, end_a[-2], end_a[-1], end_b[-1]};
  std::int64_t k = end_b[-2];
  if (op.transpose_a) std::swap(s.m, s.k);
  if (op.transpose_b) std::swap(k, s.n);
  if (s.k != k)
    throw Error(fmt::format("a{} has {} columns, b{} has {} rows: the two must be equal",
                            op.transpose_a ? " transposed" : "", s.k, op.transpose_b ? " transposed" : "",
                            k));
  for (auto extent = a.shape.begin(); extent != end_a - 2; ++extent) s.count *= *extent;
  if (s.count * s.m * s.k * s.n == 0) throw Error("an operand is empty");
  if (inputs.size() == 3) {
    Shape bias(a.shape.begin(), end_a - 2);
    bias.push_back(s.n);
    if (inputs[2] != TensorType{a.dtype, bias})
      throw Error(fmt::format("the bias must be {}", to_string(TensorType{a.dtype, bias})));
  }
  return s;
}

Types MatMulOp::infer(TypesView inputs) const {
  const MatMulSize s = matmul_size(*this, inputs);
  TensorType out = inputs[0];
  out.shape.end()[-2] = s.m;
  out.shape.end()[-1] = s.n;
  return {out};
}

// If A and B are the multiplied matrices, dA = dC·Bᵀ and dB = Aᵀ·dC. An operand that is stored transposed
// gets the transpose of its gradient.
Tensors MatMulOp::vjp(const VjpArgs& args) const {
  const Tensor &a = args.inputs[0], &b = args.inputs[1], &g = args.grads[0];
  Tensors gradients(args.inputs.size());
  if (args.needed[0])
    gradients[0] = transpose_a ? matmul(b, g, {transpose_b, true}) : matmul(g, b, {false, !transpose_b});
  if (args.needed[1])
    gradients[1] = transpose_b ? matmul(g, a, {true, transpose_a}) : matmul(a, g, {!transpose_a, false});
  if (gradients.size() == 3 && args.needed[2]) gradients[2] = sum(g, {-2});
  return gradients;
}

Tensors MatMulOp::vmap(const VmapArgs& args) const {
  const bool all = std::find(args.mapped.begin(), args.mapped.end(), false) == args.mapped.end();
  return all ? apply_op(*this, args.inputs) : map_over_models(*this, args);
}

Work MatMulOp::cost(TypesView inputs, TypesView outputs) const {
  const MatMulSize s = matmul_size(*this, inputs);
  Work work = streaming_work(inputs, outputs, inputs.size() == 3 ? 1 : 0);
  work.flops += 2.0 * static_cast<double>(s.count) * static_cast<double>(s.m) * static_cast<double>(s.k) *
                static_cast<double>(s.n);
  return work;
}

namespace {

// (…, columns) -> (rows, columns)
Tensor rows_of(const Tensor& x) {
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.type().rank(); ++axis) rows *= x.size(axis);
  return reshape(x, {rows, x.size(-1)});
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, MatMulOptions options) {
  const auto op = std::make_shared<MatMulOp>(options);
  const int rank_a = a.type().rank(), rank_b = b.type().rank();
  const auto leading = [](const Tensor& x) { return Shape(x.shape().begin(), x.shape().end() - 2); };
  if (rank_a < 2 || rank_b < 2 || leading(a) == leading(b)) return apply_op1(op, {a, b});
  if (const std::int64_t columns = a.size(options.transpose_a ? -2 : -1),
      rows = b.size(options.transpose_b ? -1 : -2);
      columns != rows)
    throw Error(
        fmt::format("matmul: a product of {} and {} has sums of {} and of {} terms: the two must be equal",
                    to_string(a.type()), to_string(b.type()), columns, rows));
  if (rank_b == 2 && !options.transpose_a) {  // one product of all rows
    const Tensor rows = apply_op1(op, {rows_of(a), b});
    Shape shape = a.shape();
    shape.back() = rows.size(1);
    return reshape(rows, shape);
  }
  Shape all;
  try {
    all = broadcast_shape(Types{{a.dtype(), leading(a)}, {b.dtype(), leading(b)}});
  } catch (const Error&) {
    throw Error(fmt::format("matmul: the leading axes of {} and {} do not broadcast", to_string(a.type()),
                            to_string(b.type())));
  }
  const auto repeated = [&](const Tensor& x) {
    Shape shape = all;
    shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
    return broadcast_to(x, shape);
  };
  return apply_op1(op, {repeated(a), repeated(b)});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (x.type().rank() < 1 || weight.type().rank() != 2)
    throw Error(fmt::format("linear: x {} and weight {} must be (…,in) and (out,in)", to_string(x.type()),
                            to_string(weight.type())));
  if (x.size(-1) != weight.size(1))
    throw Error(fmt::format("linear: x {} has {} features, and the weight {} takes {}", to_string(x.type()),
                            x.size(-1), to_string(weight.type()), weight.size(1)));
  const Tensor rows = x.type().rank() == 2 ? x : rows_of(x);
  Tensors operands{rows, weight};
  if (bias) operands.push_back(bias);
  const Tensor y = apply_op1(std::make_shared<MatMulOp>(MatMulOptions{false, true}), std::move(operands));
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  return reshape(y, shape);
}

}  // namespace tandem
