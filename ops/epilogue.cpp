#include <tandem/ops/epilogue.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/ops/mapped.h>
#include <tandem/ops/pointwise.h>

namespace tandem {
namespace {

// The expression in the place of the product's result, all of it.
class EpilogueKernel final : public Kernel {
 public:
  EpilogueKernel(const KernelTable& table, const KernelSpec& spec)
      : own_(static_cast<const Epilogue&>(spec.op).own), inputs_(spec.inputs.size()) {
    const auto& op = static_cast<const Epilogue&>(spec.op);
    const Types types = op.expression_types(spec.inputs);
    const Pointwise expression(op.program, types[0].dtype);
    product_ = op.make_product(table, spec);
    expression_ = table.make({expression, types, spec.outputs, spec.tag, spec.threads});
  }
  std::int64_t workspace() const override {
    return std::max(product_->workspace(), expression_->workspace());
  }
  void run(const Launch& l) const override {
    product_->run(l);
    const auto in = Epilogue::expression_inputs(l, own_, inputs_);
    expression_->run({in.data(), l.out, l.workspace, l.batch, l.rank});
  }

 private:
  std::size_t own_, inputs_;
  KernelPtr product_, expression_;
};

}  // namespace

Epilogue::Epilogue(OpPtr product, std::size_t own, PointwiseProgram program, std::string label)
    : product(std::move(product)), own(own), program(std::move(program)), label_(std::move(label)) {}

std::string Epilogue::label() const { return fmt::format("{} + {}", product->label(), label_); }
std::string Epilogue::attributes() const {
  return fmt::format("{}{{{}}} of {}: {}", product->name(), product->attributes(), own, to_string(program));
}

Types Epilogue::expression_types(std::span<const TensorType> inputs) const {
  if (inputs.size() < own || inputs.size() - own >= kMostInputs)
    throw Error(fmt::format("takes {} to {} inputs, not {}", own, own + kMostInputs - 1, inputs.size()));
  Types types = product->infer(inputs.first(own));
  if (types.size() != 1) throw Error(fmt::format("{} has more than one result", product->name()));
  types.insert(types.end(), inputs.begin() + static_cast<std::ptrdiff_t>(own), inputs.end());
  return types;
}

Types Epilogue::infer(std::span<const TensorType> inputs) const {
  const Types types = expression_types(inputs);
  Types values = Pointwise(program, types[0].dtype).infer(types);
  if (values[0] != types[0])
    throw Error(fmt::format("the expression makes {} of {}", to_string(values[0]), to_string(types[0])));
  return values;
}

Tensors Epilogue::vjp(const VjpArgs&) const {
  no_rule(*this, "vjp", "products are given expressions after differentiation");
}
Tensors Epilogue::batch(const BatchArgs& args) const {
  return map_over_models(std::make_shared<Epilogue>(*this), args);
}

Work Epilogue::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  const Types types = expression_types(inputs);
  Work work = streaming_work(inputs, outputs, 0);
  work.flops = product->cost(inputs.first(own), std::span(types).first(1)).flops +
               Pointwise(program, types[0].dtype).cost(types, outputs).flops;
  return work;
}

KernelPtr Epilogue::make_product(const KernelTable& table, const KernelSpec& spec) const {
  return table.make({*product, spec.inputs.first(own), spec.outputs, spec.tag, spec.threads});
}

Epilogue::Addresses Epilogue::expression_inputs(const Launch& launch, std::size_t own, std::size_t all) {
  Addresses in{launch.out[0]};
  std::copy(launch.in + own, launch.in + all, in.begin() + 1);
  return in;
}

KernelPtr make_epilogue(const KernelTable& table, const KernelSpec& spec) {
  return std::make_unique<EpilogueKernel>(table, spec);
}
KernelPtr make_epilogue_reference(const KernelSpec& spec) { return make_epilogue(reference_kernels(), spec); }

}  // namespace tandem
