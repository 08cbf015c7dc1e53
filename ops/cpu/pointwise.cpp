#include <tandem/ops/pointwise.h>

#include <algorithm>
#include <utility>

#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/tiled_expression.h>

namespace tandem::engine {

namespace {

// Evaluates an expression tile by tile. Has the requested number of pieces if that gives equal pieces, else
// 1.
class PointwiseKernel final : public Kernel {
 public:
  PointwiseKernel(TiledExpression expression, const KernelSpec& spec)
      : expression_(std::move(expression)),
        pieces_(expression_.elements() % spec.pieces == 0 ? spec.pieces : 1) {
    const double bytes = spec.op.cost(spec.inputs, spec.outputs).bytes;
    threads_ = useful_threads(spec.threads, static_cast<std::int64_t>(bytes) / pieces_);
  }
  void run(const Launch& l) const override { evaluate(l, 0, expression_.elements()); }
  int pieces() const override { return pieces_; }
  void run_piece(const Launch& l, int piece) const override {
    const std::int64_t size = expression_.elements() / pieces_;
    evaluate(l, piece * size, (piece + 1) * size);
  }

 private:
  void evaluate(const Launch& l, std::int64_t begin, std::int64_t end) const {
    const std::int64_t tile = expression_.tile();
    parallel_parts(threads_, (end - begin + tile - 1) / tile, [&](std::int64_t first, std::int64_t last) {
      expression_.store(l.in, l.out[0], begin + first * tile, std::min(begin + last * tile, end));
    });
  }

  TiledExpression expression_;
  int pieces_, threads_;
};

}  // namespace

KernelPtr make_pointwise_cpu(const KernelSpec& spec) {
  if (pointwise_precision(spec.inputs, spec.outputs[0].dtype) == DType::f64) return nullptr;
  if (spec.outputs[0].elements() == 0) return make_kernel([](const Launch&) {});
  auto expression = TiledExpression::make(static_cast<const PointwiseOp&>(spec.op).expression, spec.inputs,
                                          spec.outputs[0]);
  if (!expression) return nullptr;
  return std::make_unique<PointwiseKernel>(std::move(*expression), spec);
}

}  // namespace tandem::engine
