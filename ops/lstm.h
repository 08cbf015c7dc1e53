#pragma once
#include <tandem/ops/apply.h>

namespace tandem::engine {

/// Which cell an LSTM has, and what its operands are besides the gates and the hidden weights.
struct LstmForm {
  bool projected = false;    ///< the cells' outputs are projected; always with `residual`
  bool residual = false;     ///< the cell of Residual LSTM
  bool reverse = false;      ///< runs from the last step to the first
  bool has_lengths = false;  ///< rows end before the last step

  // The numbers of the operands that exist. Operand 0 is the gates.
  static constexpr int hidden = 1, projection = 2, peepholes = 3, output_peephole = 4, shortcut = 5;
  int lengths() const { return residual ? 6 : projected ? 3 : 2; }
  int operands() const { return lengths() + int{has_lengths}; }
  int outputs() const { return residual ? 4 : 3; }
};

/// Extents of an LSTM: N rows of T steps, H cells, P outputs.
struct LstmSize {
  std::int64_t rows, steps, cells, outputs;
  bool residual;
  /// The features of a step's gates: i, f and g of each cell, then o of each cell, in Residual LSTM of each
  /// output.
  std::int64_t gates() const { return 3 * cells + (residual ? outputs : cells); }
};

/// gates (N,T,G), hidden (G,P) [, projection (P,H)] [, peepholes (2,H), output_peephole (P,H), shortcut
/// (N,T,P)] [, lengths i32 (N)] -> h (N,T,P), c (N,T,H), activated gates (N,T,G) [, sums (N,T,P)]. The gates
/// come in as products with the inputs of all steps, biases included; step t adds hidden·h(t−1). Then
///
///     i = σ(gates_i), f = σ(gates_f), g = tanh(gates_g), o = σ(gates_o)
///     c(t) = f ⊙ c(t−1) + i ⊙ g
///     h(t) = o ⊙ tanh c(t), or projection·(o ⊙ tanh c(t))
///
/// as torch.nn.LSTM does, from h = c = 0. The cell of Residual LSTM also adds peepholes_i ⊙ c(t−1) to i,
/// peepholes_f ⊙ c(t−1) to f and output_peephole·c(t) to o before their σ, and its output is
/// h(t) = o ⊙ sums(t), sums(t) = projection·tanh c(t) + shortcut(t) (Kim, El-Khamy & Lee, 2017).
///
/// Row n ends at step lengths[n]: everything is 0 from there on. A length outside 0 … T throws Error when the
/// op runs.
class LstmOp final : public Op {
 public:
  explicit LstmOp(LstmForm form) : form(form) {}
  std::string_view name() const override { return "lstm"; }
  std::string attributes() const override;
  Precision precision() const override { return Precision::low; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {{2, 0, Alias::in_place}}; }
  const LstmForm form;
};

/// The gates' gradients of LstmOp, step after step. Its operands are those of LstmOp, with the activated
/// gates for the gates and the sums for the shortcut, then c and the gradient of h -> the gradient of the
/// gates (N,T,G) [, if projected: that of the projection's results (N,T,P)]. The gradients of the weights are
/// products with these. Has no derivative.
class LstmGradOp final : public Op {
 public:
  explicit LstmGradOp(LstmForm form) : form(form) {}
  std::string_view name() const override { return "lstm_grad"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {{0, 0, Alias::in_place}}; }
  const LstmForm form;
};

/// Returns the extents of an LstmOp or LstmGradOp. Throws Error naming operands that do not fit.
LstmSize lstm_size(const LstmForm& form, TypesView inputs);
/// Throws Error naming the first length that is outside 0 … steps.
void check_lengths(const std::int32_t* lengths, const LstmSize& size);

}  // namespace tandem::engine

namespace tandem {

/// Parameters of an LSTM with C inputs, H cells and P outputs, in torch.nn.LSTM's layout: the gates i, f, g
/// and o follow each other.
struct LstmWeights {
  Tensor input;       ///< (4H,C)
  Tensor hidden;      ///< (4H,P)
  Tensor bias;        ///< (4H), or undefined
  Tensor projection;  ///< (P,H), or undefined: P = H
};

/// Parameters of a Residual LSTM with P inputs, H cells and P outputs. The gates i, f and g have H rows each,
/// o has P.
struct ResidualLstmWeights {
  Tensor input;            ///< (3H+P,P)
  Tensor hidden;           ///< (3H+P,P)
  Tensor bias;             ///< (3H+P)
  Tensor peepholes;        ///< (2,H): from each cell to its own i and f
  Tensor output_peephole;  ///< (P,H): from the cells to o
  Tensor projection;       ///< (P,H)
};

struct LstmOptions {
  bool reverse = false;  ///< runs from the last step to the first
  Tensor lengths{};      ///< (N): the steps of each row, 0 … T; undefined: all have T. Later outputs are 0;
                         ///< later inputs must be finite, because gradients multiply them by 0
};

/// Returns the outputs h (N,T,P) of all steps for inputs x (N,T,C), starting from h = c = 0, as torch.nn.LSTM
/// (one layer, one direction, batch_first, proj_size). One product computes what all inputs add to the gates.
/// Throws Error naming shapes that do not fit.
Tensor lstm(const Tensor& x, const LstmWeights& weights, const LstmOptions& options = {});
/// The same with the cell of Residual LSTM, whose outputs add the inputs x (N,T,P) to the projected cells.
/// (Kim, El-Khamy & Lee, 2017: https://arxiv.org/abs/1701.03360)
Tensor residual_lstm(const Tensor& x, const ResidualLstmWeights& weights, const LstmOptions& options = {});

}  // namespace tandem
