// The expression of a product's result, in the place of each piece of it as soon as that is made.
#include <tandem/ops/epilogue.h>

#include <algorithm>

#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/tiled_expression.h>
#include <tandem/ops/pointwise.h>

namespace tandem {
namespace {

class PiecewiseEpilogue final : public Kernel {
 public:
  PiecewiseEpilogue(KernelPtr product, TiledExpression expression, const KernelSpec& spec)
      : own_(static_cast<const Epilogue&>(spec.op).own),
        inputs_(spec.inputs.size()),
        product_(std::move(product)),
        expression_(std::move(expression)),
        threads_(useful_threads(spec.threads, spec.outputs[0].bytes() / product_->pieces())) {}
  std::int64_t workspace() const override { return product_->workspace(); }

  void run(const Launch& l) const override {
    const auto in = Epilogue::expression_inputs(l, own_, inputs_);
    const std::int64_t pieces = product_->pieces(), size = expression_.elements() / pieces,
                       tile = expression_.tile();
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      product_->run_piece(l, static_cast<int>(piece));
      parallel_parts(threads_, (size + tile - 1) / tile, [&](std::int64_t first, std::int64_t last) {
        const std::int64_t begin = piece * size;
        expression_.store(in.data(), l.out[0], begin + first * tile, begin + std::min(last * tile, size));
      });
    }
  }

 private:
  std::size_t own_, inputs_;
  KernelPtr product_;
  TiledExpression expression_;
  int threads_;
};

}  // namespace

KernelPtr make_epilogue_cpu(const KernelSpec& spec) {
  const auto& op = static_cast<const Epilogue&>(spec.op);
  const Types types = op.expression_types(spec.inputs);
  std::optional<TiledExpression> expression;
  if (pointwise_precision(types, types[0].dtype) == DType::f32)
    expression = TiledExpression::make(op.program, types, types[0]);
  if (!expression) return make_epilogue(cpu_kernels(), spec);
  return std::make_unique<PiecewiseEpilogue>(op.make_product(cpu_kernels(), spec), std::move(*expression),
                                             spec);
}

}  // namespace tandem
