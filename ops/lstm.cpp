#include <tandem/ops/lstm.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/index.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>

namespace tandem {
using namespace engine;
namespace {

std::string text_of(const LstmForm& f) {
  return fmt::format("projected={} residual={} reverse={} has_lengths={}", int{f.projected}, int{f.residual},
                     int{f.reverse}, int{f.has_lengths});
}

Work work_of(const LstmForm& form, TypesView inputs, TypesView outputs) {
  const LstmSize s = lstm_size(form, inputs);
  const std::int64_t of_cells = s.outputs * s.cells, weights = s.gates() * s.outputs +
                                                               (form.projected ? of_cells : 0) +
                                                               (form.residual ? of_cells : 0);
  Work work = streaming_work(inputs, outputs, 0);
  work.flops = 2 * static_cast<double>(s.rows * s.steps) * static_cast<double>(weights);
  return work;
}

// What each step had from the step that ran before it, 0 in the first.
Tensor before_each_step(const Tensor& x, const LstmForm& form) {
  const std::int64_t steps = x.size(1);
  if (steps == 1) return Tensor::zeros(x.type());
  return form.reverse ? pad(slice(x, 1, 1, steps), 1, 0, 1) : pad(slice(x, 1, 0, steps - 1), 1, 1, 0);
}

// The rows of all steps: (N,T,F) -> (N·T,F).
Tensor rows_of(const Tensor& x) { return reshape(x, {x.size(0) * x.size(1), x.size(2)}); }
// The gradient (A,B) of a matrix by which all steps multiplied x (N,T,B) to get y (N,T,A).
Tensor matrix_gradient(const Tensor& gradient_of_y, const Tensor& x) {
  return matmul(rows_of(gradient_of_y), rows_of(x), {.transpose_a = true});
}

// The gradient of the peepholes (2,H), from those of all gates and what the cells were.
Tensor peephole_gradient(const Tensor& gates, const Tensor& cells) {
  const std::int64_t rows = cells.size(0), steps = cells.size(1), width = cells.size(2);
  return sum(reshape(slice(gates, 2, 0, 2 * width), {rows, steps, 2, width}) *
                 reshape(cells, {rows, steps, 1, width}),
             {0, 1});
}

Tensor run(LstmForm form, Tensors operands, const LstmOptions& options) {
  form.reverse = options.reverse;
  form.has_lengths = options.lengths.defined();
  if (form.has_lengths) operands.push_back(index32(options.lengths));
  return apply_op(std::make_shared<LstmOp>(form), std::move(operands))[0];
}

}  // namespace

LstmSize engine::lstm_size(const LstmForm& form, TypesView inputs) {
  if (inputs.size() < static_cast<std::size_t>(form.operands()))
    throw Error(fmt::format("takes {} inputs, not {}", form.operands(), inputs.size()));
  const auto input = [&](int i) { return inputs[static_cast<std::size_t>(i)]; };
  const TensorType &gates = inputs[0], hidden = input(LstmForm::hidden);
  if (!is_floating(gates.dtype) || gates.rank() != 3 || gates.elements() == 0)
    throw Error(fmt::format("the gates must be (N,T,G), floating and not empty, not {}", to_string(gates)));
  const std::int64_t width = gates.shape[2];
  if (hidden.dtype != gates.dtype || hidden.rank() != 2 || hidden.shape[0] != width || hidden.shape[1] == 0)
    throw Error(fmt::format("the hidden weights must be {}, not {}",
                            fmt::format("{}[{}, P]", name_of(gates.dtype), width), to_string(hidden)));
  const std::int64_t outputs = hidden.shape[1], of_cells = form.residual ? width - outputs : width,
                     gates_of_a_cell = form.residual ? 3 : 4;
  if (of_cells <= 0 || of_cells % gates_of_a_cell != 0)
    throw Error(
        form.residual
            ? fmt::format(
                  "{} features do not split into three gates of each cell and the gates of {} outputs", width,
                  outputs)
            : fmt::format("{} features do not split into four gates", width));
  const LstmSize size{gates.shape[0], gates.shape[1], of_cells / gates_of_a_cell, outputs, form.residual};
  const auto require = [&](std::string_view what, int i, Shape shape) {
    require_type(what, input(i), {gates.dtype, std::move(shape)});
  };
  if (form.projected)
    require("the projection", LstmForm::projection, {outputs, size.cells});
  else if (size.cells != outputs)
    throw Error(fmt::format("{} cells have {} outputs without a projection", size.cells, outputs));
  if (form.residual) {
    require("peepholes", LstmForm::peepholes, {2, size.cells});
    require("the output's peephole", LstmForm::output_peephole, {outputs, size.cells});
    require("the shortcut", LstmForm::shortcut, {size.rows, size.steps, outputs});
  }
  if (form.has_lengths) require_type("lengths", input(form.lengths()), {DType::i32, {size.rows}});
  return size;
}

void engine::check_lengths(const std::int32_t* lengths, const LstmSize& size) {
  for (std::int64_t n = 0; n < size.rows; ++n)
    if (lengths[n] < 0 || lengths[n] > size.steps)
      throw Error(fmt::format("length {} of row {} is outside the range 0 to {}", lengths[n], n, size.steps));
}

std::string LstmOp::attributes() const { return text_of(form); }
Types LstmOp::infer(TypesView inputs) const {
  require_inputs(inputs, static_cast<std::size_t>(form.operands()));
  const LstmSize s = lstm_size(form, inputs);
  const DType dtype = inputs[0].dtype;
  Types types{{dtype, {s.rows, s.steps, s.outputs}}, {dtype, {s.rows, s.steps, s.cells}}, inputs[0]};
  if (form.residual) types.push_back(types[0]);
  return types;
}
Tensors LstmOp::vjp(const VjpArgs& args) const {
  for (std::size_t i = 1; i < args.grads.size(); ++i)
    if (args.grads[i]) no_rule(*this, "derivative", "only the outputs h have gradients");
  const Tensor &h = args.outputs[0], &c = args.outputs[1], &activated = args.outputs[2];
  Tensors operands = args.inputs;
  operands[0] = activated;
  if (form.residual) operands[LstmForm::shortcut] = args.outputs[3];
  operands.insert(operands.end(), {c, args.grads[0]});
  const Tensors found = apply_op(std::make_shared<LstmGradOp>(form), std::move(operands));
  const Tensor& gates = found[0];

  Tensors gradients(args.inputs.size());
  gradients[0] = gates;
  gradients[LstmForm::hidden] = matrix_gradient(gates, before_each_step(h, form));
  if (form.projected) {
    const std::int64_t width = gates.size(2);
    const Tensor outputs = tanh(c);
    gradients[LstmForm::projection] = matrix_gradient(
        found[1], form.residual ? outputs : slice(activated, 2, 3 * c.size(2), width) * outputs);
    if (form.residual) {
      gradients[LstmForm::peepholes] = peephole_gradient(gates, before_each_step(c, form));
      gradients[LstmForm::output_peephole] = matrix_gradient(slice(gates, 2, 3 * c.size(2), width), c);
      gradients[LstmForm::shortcut] = found[1];
    }
  }
  return gradients;
}
Work LstmOp::cost(TypesView inputs, TypesView outputs) const { return work_of(form, inputs, outputs); }

std::string LstmGradOp::attributes() const { return text_of(form); }
Types LstmGradOp::infer(TypesView inputs) const {
  const std::size_t given = static_cast<std::size_t>(form.operands());
  require_inputs(inputs, given + 2);
  const LstmSize s = lstm_size(form, inputs);
  const TensorType outputs{inputs[0].dtype, {s.rows, s.steps, s.outputs}};
  require_type("c", inputs[given], {inputs[0].dtype, {s.rows, s.steps, s.cells}});
  require_type("the gradient of h", inputs[given + 1], outputs);
  Types types{inputs[0]};
  if (form.projected) types.push_back(outputs);
  return types;
}
Tensors LstmGradOp::vjp(const VjpArgs&) const {
  no_rule(*this, "derivative", "for second derivatives, compute the steps by matmul, sigmoid and tanh");
}
Work LstmGradOp::cost(TypesView inputs, TypesView outputs) const { return work_of(form, inputs, outputs); }

Tensor lstm(const Tensor& x, const LstmWeights& w, const LstmOptions& options) {
  Tensors operands{linear(x, w.input, w.bias), w.hidden};
  if (w.projection) operands.push_back(w.projection);
  return run({.projected = w.projection.defined()}, std::move(operands), options);
}
Tensor residual_lstm(const Tensor& x, const ResidualLstmWeights& w, const LstmOptions& options) {
  return run({.projected = true, .residual = true},
             {linear(x, w.input, w.bias), w.hidden, w.projection, w.peepholes, w.output_peephole, x},
             options);
}

}  // namespace tandem
