#include <tandem/ops/epilogue.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

// Evaluates the expression in the memory of the product's result: piece by piece if both kernels have the
// same number of pieces, otherwise for the whole result.
class EpilogueKernel final : public Kernel {
 public:
  explicit EpilogueKernel(const KernelSpec& spec)
      : own_(static_cast<const EpilogueOp&>(spec.op).own), inputs_(spec.inputs.size()) {
    const auto& op = static_cast<const EpilogueOp&>(spec.op);
    const Types types = op.expression_types(spec.inputs);
    const PointwiseOp expression(op.expression, types[0].dtype);
    product_ = spec.table->make({*op.product, spec.inputs.first(own_), spec.outputs, spec.tag, spec.threads});
    expression_ = spec.table->make(
        {expression, types, spec.outputs, spec.tag, spec.threads, spec.microbatches, 0, product_->pieces()});
  }
  // The two workspaces do not overlap, because the product's next piece needs the contents of its own.
  std::int64_t workspace() const override {
    return align_up(product_->workspace()) + expression_->workspace();
  }
  void run(const Launch& l) const override {
    std::array<const void*, EpilogueOp::kMostInputs> in{l.out[0]};
    std::copy(l.in + own_, l.in + inputs_, in.begin() + 1);
    auto* const scratch = static_cast<std::byte*>(l.workspace) + align_up(product_->workspace());
    const Launch expression{in.data(), l.out, scratch, l.batch, l.rank};
    if (product_->pieces() == expression_->pieces()) {
      for (int piece = 0; piece < product_->pieces(); ++piece) {
        product_->run_piece(l, piece);
        expression_->run_piece(expression, piece);
      }
    } else {
      product_->run(l);
      expression_->run(expression);
    }
  }

 private:
  std::size_t own_, inputs_;
  KernelPtr product_, expression_;
};

}  // namespace

EpilogueOp::EpilogueOp(OpPtr product, std::size_t own, PointwiseExpression expression, std::string label)
    : product(std::move(product)), own(own), expression(std::move(expression)), label_(std::move(label)) {}

std::string EpilogueOp::label() const { return fmt::format("{} + {}", product->label(), label_); }
std::string EpilogueOp::attributes() const {
  return fmt::format("{}{{{}}} of {}: {}", product->name(), product->attributes(), own,
                     to_string(expression));
}

Types EpilogueOp::expression_types(TypesView inputs) const {
  if (inputs.size() < own || inputs.size() - own >= kMostInputs)
    throw Error(fmt::format("takes {} to {} inputs, not {}", own, own + kMostInputs - 1, inputs.size()));
  Types types = product->infer(inputs.first(own));
  if (types.size() != 1) throw Error(fmt::format("{} has more than one result", product->name()));
  types.insert(types.end(), inputs.begin() + static_cast<std::ptrdiff_t>(own), inputs.end());
  return types;
}

Types EpilogueOp::infer(TypesView inputs) const {
  const Types types = expression_types(inputs);
  Types values = PointwiseOp(expression, types[0].dtype).infer(types);
  if (values[0] != types[0])
    throw Error(fmt::format("the expression gives {}, but the product gives {}", to_string(values[0]),
                            to_string(types[0])));
  return values;
}

Tensors EpilogueOp::vjp(const VjpArgs&) const {
  no_rule(*this, "vjp", "a pass makes epilogues after differentiation");
}

Work EpilogueOp::cost(TypesView inputs, TypesView outputs) const {
  const Types types = expression_types(inputs);
  return {product->cost(inputs.first(own), std::span(types).first(1)).flops +
              PointwiseOp(expression, types[0].dtype).cost(types, outputs).flops,
          streaming_work(inputs, outputs, 0).bytes};
}

KernelPtr make_epilogue(const KernelSpec& spec) { return std::make_unique<EpilogueKernel>(spec); }

}  // namespace tandem::engine
