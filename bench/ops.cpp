// Measures single kernels: the layers of a VGG16 and a ResNet-20 on CIFAR images at batch 128, matrix
// products, dropout, pooling, norms, indices, attention, LSTMs. Prints one line per op: milliseconds, GFLOP/s and
// GB/s by its own cost rule, calls of operator new per run (oneDNN makes a few for its argument table), and
// its signature.
#include <fmt/format.h>

#include <tandem/engine.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/epilogue.h>

#include "allocations.h"
#include "ceilings.h"
#include "command_line.h"
#include "kernel_alone.h"

namespace tandem::bench {
using namespace engine;
namespace {

struct Options {
  int threads;
  std::string only;
};

double measure(const Options& options, const Op& op, const Types& inputs) {
  const std::string text = signature(op, inputs);
  if (text.find(options.only) == std::string::npos) return 0;
  const Types outputs = op.infer(inputs);
  const KernelAlone kernel(op, inputs, outputs, options.threads);
  const double seconds = kernel.fastest(0.3);
  const long before = testing::allocations();
  kernel.run();
  const Work work = op.cost(inputs, outputs);
  fmt::print("{:9.3f} ms {:6.0f} GFLOP/s {:5.0f} GB/s {:3} new  {}\n", 1e3 * seconds,
             work.flops / seconds / 1e9, work.bytes / seconds / 1e9, testing::allocations() - before, text);
  return seconds;
}

TensorType f32(Shape shape) { return {DType::f32, std::move(shape)}; }

struct Layer {
  std::int64_t pixels, in, out, stride, times;
};

// Products with large results and a relu, as one kernel with an epilogue and as two kernels.
void measure_epilogues(const Options& options) {
  const PointwiseExpression relu{{PointwiseCode::input, 0}, {PointwiseCode::relu, 0}};
  const auto both = [&](const OpPtr& product, const Types& inputs) {
    const double product_alone = measure(options, *product, inputs),
                 relu_alone = measure(options, PointwiseOp(relu, DType::f32), product->infer(inputs)),
                 together = measure(options, EpilogueOp(product, inputs.size(), relu, "relu"), inputs);
    if (together > 0 && product_alone > 0)
      fmt::print("as an epilogue {:.0f}% of the time of two kernels\n",
                 100 * together / (product_alone + relu_alone));
  };
  const auto conv = std::make_shared<Conv2dOp>(Conv2dOptions{.padding = 1});
  both(conv, {f32({128, 32, 32, 3}), f32({64, 3, 3, 3})});
  both(conv, {f32({128, 32, 32, 64}), f32({64, 3, 3, 64})});
  both(std::make_shared<MatMulOp>(MatMulOptions{false, true}),
       {f32({8192, 512}), f32({2048, 512}), f32({2048})});
}

// Forward and both gradients of 3×3 convolutions; the first layer's image needs no gradient.
void measure_convolutions(const Options& options, const char* network, const std::vector<Layer>& layers) {
  double total = 0, flops = 0;
  for (const Layer& l : layers) {
    const Conv2dOptions o{.stride = l.stride, .padding = 1};
    const TensorType x = f32({128, l.pixels, l.pixels, l.in}), w = f32({l.out, 3, 3, l.in});
    const TensorType y = Conv2dOp(o).infer(std::vector{x, w})[0];
    const auto times = static_cast<double>(l.times);
    const double forward = measure(options, Conv2dOp(o), {x, w});
    const double input = l.in > 3 ? measure(options, Conv2dGradInputOp(o, l.pixels), {y, w}) : 0;
    const double weight = measure(options, Conv2dGradWeightOp(o, 3, false), {x, y});
    total += times * (forward + input + weight);
    flops += times * (l.in > 3 ? 3 : 2) * Conv2dOp(o).cost(std::vector{x, w}, std::vector{y}).flops;
  }
  if (options.only.empty())
    fmt::print("{}: {:.1f} ms, {:.0f} GFLOP/s\n", network, 1e3 * total, flops / total / 1e9);
}

void measure_products(const Options& options) {
  for (std::int64_t n : {8, 32, 64, 128, 256, 1024})
    for (bool t : {false, true}) measure(options, MatMulOp({t, !t}), {f32({n, n}), f32({n, n})});
  measure(options, MatMulOp({false, true}), {f32({128, 512}), f32({10, 512}), f32({10})});
  measure(options, MatMulOp({false, true}), {f32({128, 4096}), f32({4096, 4096}), f32({4096})});
  measure(options, MatMulOp({false, true}), {f32({256, 128, 64}), f32({256, 128, 64})});
  measure(options, MatMulOp({}), {f32({512, 32, 64}), f32({512, 64, 32})});
}

void measure_images(const Options& options) {
  for (const Shape& s :
       {Shape{128, 32, 32, 16}, Shape{128, 32, 32, 64}, Shape{128, 16, 16, 128}, Shape{128, 4, 4, 512}}) {
    const TensorType c = f32({s.back()}), g = f32({s[0], 4});
    measure(options, DropoutOp(0.5), {f32(s), {DType::i64, {}}});
    for (DType dtype : {DType::f32, DType::bf16}) {
      const TensorType x{dtype, s};
      measure(options, BatchNormOp(1e-5), {x, c, c});
      measure(options, BatchNormStatisticsOp(1e-5), {x});
      measure(options, BatchNormSumsOp(dtype), {x, c, x});
      measure(options, GroupNormOp(4, 1e-5, true), {x, c, c});
      measure(options, GroupNormGradOp(4, true), {x, c, x, g, g});
      for (const Pool2dOptions& o : {Pool2dOptions(2), Pool2dOptions(3, 2, 1)}) {
        const Types y = MaxPool2dOp(o).infer(std::vector{x});
        measure(options, MaxPool2dOp(o), {x});
        measure(options, MaxPool2dGradOp(o, s[1]), y);
        measure(options, AvgPool2dOp(o), {x});
        measure(options, AvgPool2dGradOp(o, s[1]), {y[0]});
      }
    }
  }
}

void measure_indices(const Options& options) {
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, int>>{
           {{4096, 1000}, 1}, {{4096, 1000}, 0}, {{128, 32, 32, 64}, 3}, {{1000000}, 0}}) {
    const TensorType x = f32(shape), index{DType::i32, shape};
    measure(options, GatherOp(axis), {x, index});
    measure(options, ScatterAddOp(axis, shape[static_cast<std::size_t>(axis)]), {x, index});
    measure(options, ArgExtremeOp(Reduction::max, axis), {x});
  }
  measure(options, OneHotOp(1000, DType::f32), {{DType::i32, {4096}}});
  const TensorType image = f32({128, 32, 32, 16}), taken = f32({128, 16, 16, 16});
  measure(options, SliceOp({{1, 0, 32, 2}, {2, 0, 32, 2}}), {image});
  measure(options, PadOp({{1, 0, 1, 1}, {2, 0, 1, 1}}), {taken});
  measure(options, MaxPool2dOp(Pool2dOptions(1, 2)), {image});
  measure(options, MaxPool2dGradOp(Pool2dOptions(1, 2), 32), {taken, {DType::u8, taken.shape}});
}

}  // namespace

// A layer of Residual LSTM, and one of torch.nn.LSTM, at 32 texts of 20 words; without the product of the
// inputs, which is a matmul.
void measure_lstms(const Options& options) {
  const std::int64_t rows = 32, steps = 20, cells = 1024, outputs = 512;
  for (const bool residual : {true, false}) {
    const LstmForm form{.projected = residual, .residual = residual};
    const std::int64_t p = residual ? outputs : cells, gates = residual ? 3 * cells + p : 4 * cells;
    Types inputs{f32({rows, steps, gates}), f32({gates, p})};
    if (residual)
      inputs.insert(inputs.end(), {f32({p, cells}), f32({2, cells}), f32({p, cells}), f32({rows, steps, p})});
    measure(options, LstmOp(form), inputs);
    inputs.insert(inputs.end(), {f32({rows, steps, cells}), f32({rows, steps, p})});
    measure(options, LstmGradOp(form), inputs);
  }
}

// GPT-2's heads, and BERT's at batch 4.
void measure_attention(const Options& options) {
  for (const auto& [samples, positions, causal] :
       {std::tuple(1, 256, true), {1, 1024, true}, {1, 4096, true}, {4, 128, false}}) {
    const AttentionForm form{.heads = 12, .packed = true, .causal = causal, .scale = 0.125};
    const AttentionOp op(form);
    Types inputs{f32({samples, positions, 3 * 768})};
    measure(options, op, inputs);
    const Types outputs = op.infer(inputs);
    inputs.insert(inputs.end(), {outputs[0], outputs[1], outputs[0]});
    measure(options, AttentionGradOp(form), inputs);
  }
}

// Chains of operations on arrays larger than the caches, as one expression each.
void measure_expressions(const Options& options) {
  using Code = PointwiseCode;
  const TensorType x = f32({16 << 20}), c = f32({64});
  PointwiseBuilder b;
  int r = b.input(0);
  for (const Code code : {Code::add, Code::mul, Code::sub, Code::max, Code::mul, Code::add})
    r = b.emit({code, r, b.constant(0.5 + r)});
  std::vector<int> inputs;
  measure(options, PointwiseOp(b.finish(r, inputs), DType::f32), {x});
  measure(options, PointwiseOp({{Code::input, 0}, {Code::input, 1}, {Code::add, 0, 1}}, DType::f32), {x, x});
  measure(options, PointwiseOp({{Code::input, 0}, {Code::gelu, 0}}, DType::f32), {x});
  PointwiseBuilder n;  // (x − mean)·scale + shift by channel, plus a residual, then relu
  r = n.emit({Code::mul, n.emit({Code::sub, n.input(0), n.input(1)}), n.input(2)});
  r = n.emit({Code::relu, n.emit({Code::add, n.emit({Code::add, r, n.input(3)}), n.input(4)})});
  const TensorType image = f32({256, 32, 32, 64});
  measure(options, PointwiseOp(n.finish(r, inputs), DType::f32), {image, c, c, c, image});
}

void measure_all(const Options& options) {
  const Ceilings most = measure_ceilings(options.threads);
  fmt::print("{} threads, which do at most {:.0f} GFLOP/s and {:.0f} GB/s\n", options.threads,
             most.flops / 1e9, most.bandwidth / 1e9);
  measure_expressions(options);
  measure_epilogues(options);
  measure_convolutions(options, "VGG16-CIFAR",
                       {{32, 3, 64, 1, 1},
                        {32, 64, 64, 1, 1},
                        {16, 64, 128, 1, 1},
                        {16, 128, 128, 1, 1},
                        {8, 128, 256, 1, 1},
                        {8, 256, 256, 1, 2},
                        {4, 256, 512, 1, 1},
                        {4, 512, 512, 1, 2},
                        {2, 512, 512, 1, 3}});
  measure_convolutions(options, "ResNet-20",
                       {{32, 3, 16, 1, 1},
                        {32, 16, 16, 1, 6},
                        {32, 16, 32, 2, 1},
                        {16, 32, 32, 1, 5},
                        {16, 32, 64, 2, 1},
                        {8, 64, 64, 1, 5}});
  measure_products(options);
  measure_images(options);
  measure_indices(options);
  measure_attention(options);
  measure_lstms(options);
}

}  // namespace tandem::bench

int main(int argc, char** argv) {
  using namespace tandem;
  CLI::App app{
      "Measures milliseconds, GFLOP/s and GB/s of single kernels, at the sizes of VGG16 and ResNet-20.",
      "bench_ops"};
  bench::Options options{default_threads(), ""};
  app.option_defaults()->always_capture_default();
  app.add_option("--threads", options.threads, "threads of the team")->check(CLI::PositiveNumber);
  app.add_option("--only", options.only, "measure only ops with this text in their signature");
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    bench::measure_all(options);
  });
}
