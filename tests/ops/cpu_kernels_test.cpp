// Guarantees of the CPU kernels in addition to their values: one prepared kernel serves several lanes at
// once, running allocates nothing, and sixteen-bit products, norms, and pooling follow from their operands.
#include <array>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tandem/core/base/memory.h>
#include <tandem/core/base/team.h>
#include <tandem/ops/apply.h>
#include <tandem/ops/attention.h>
#include <tandem/ops/conv.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/embedding_bag.h>
#include <tandem/ops/group_norm.h>
#include <tandem/ops/index.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/lstm.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/norm.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/pool.h>
#include <tandem/ops/random.h>
#include <tandem/ops/reduce.h>
#include <tandem/ops/shape.h>
#include <tandem/ops/sparse_update.h>
#include <tandem/ops/update.h>

#include "allocations.h"
#include "op_case.h"
#include "seed.h"
#include "threads_of_process.h"

namespace tandem::testing {
using namespace engine;
namespace {

struct OpOnTypes {
  std::shared_ptr<const Op> op;
  Types inputs;
};

TensorType f32_type(Shape shape) { return {DType::f32, std::move(shape)}; }

// Ops with oneDNN kernels and ops with our own kernels, large enough for a team.
std::vector<OpOnTypes> library_ops() {
  const Conv2dOptions o{.padding = 1};
  const TensorType x = f32_type({4, 16, 16, 24}), w = f32_type({40, 3, 3, 24}), y = f32_type({4, 16, 16, 40}),
                   tiny = f32_type({32, 2, 2, 40});
  const TensorType gates = f32_type({96, 4, 512}), hidden = f32_type({512, 128}),
                   cells = f32_type({96, 4, 128});
  return {{std::make_shared<MatMulOp>(MatMulOptions{false, true}),
           {f32_type({96, 300}), f32_type({160, 300}), f32_type({160})}},
          {std::make_shared<MatMulOp>(MatMulOptions{}), {f32_type({64, 32, 32}), f32_type({64, 32, 32})}},
          {std::make_shared<Conv2dOp>(o), {x, w, f32_type({40})}},
          {std::make_shared<Conv2dGradInputOp>(o, 16), {y, w}},
          {std::make_shared<Conv2dGradWeightOp>(o, 3, true), {x, y}},
          {std::make_shared<Conv2dOp>(o), {y, f32_type({32, 3, 3, 40}), f32_type({32})}},     // Winograd
          {std::make_shared<Conv2dOp>(o), {tiny, f32_type({32, 3, 3, 40}), f32_type({32})}},  // a product
          {std::make_shared<Conv2dGradWeightOp>(o, 3, true), {tiny, tiny}},
          {std::make_shared<LstmOp>(LstmForm{}), {gates, hidden}},
          {std::make_shared<LstmGradOp>(LstmForm{}), {gates, hidden, cells, cells}}};
}
std::vector<OpOnTypes> own_ops() {
  const TensorType x = f32_type({16, 32, 32, 64}), c = f32_type({64}), y = f32_type({16, 16, 16, 64});
  const TensorType table = f32_type({1000, 64}), ids{DType::i32, {1024, 2, 1}};
  const AttentionForm heads{.heads = 4, .packed = true, .causal = true, .scale = 0.25};
  const TensorType qkv = f32_type({4, 160, 192}), y_of_heads = f32_type({4, 160, 64});
  return {{std::make_shared<BatchNormOp>(1e-5), {x, c, c}},
          {std::make_shared<BatchNormStatisticsOp>(1e-5), {x}},
          {std::make_shared<BatchNormSumsOp>(DType::f32), {x, c, x}},
          {std::make_shared<MaxPool2dOp>(Pool2dOptions(2)), {x}},
          {std::make_shared<MaxPool2dGradOp>(Pool2dOptions(2), 32), {y, {DType::u8, y.shape}}},
          {std::make_shared<AvgPool2dOp>(Pool2dOptions(2)), {x}},
          {std::make_shared<AvgPool2dGradOp>(Pool2dOptions(2), 32), {y}},
          {std::make_shared<MaxPool2dOp>(Pool2dOptions::adaptive(7)), {x}},
          {std::make_shared<GroupNormOp>(8, 1e-5, true), {x, c, c}},
          {std::make_shared<GroupNormGradOp>(8, true), {x, c, x, f32_type({16, 8}), f32_type({16, 8})}},
          {std::make_shared<EmbeddingOp>(), {f32_type({1000, 64}), {DType::i32, {4096}}}},
          {std::make_shared<EmbeddingGradOp>(1000), {f32_type({4096, 64}), {DType::i32, {4096}}}},
          {std::make_shared<GatherOp>(1), {f32_type({512, 300}), {DType::i32, {512, 300}}}},
          {std::make_shared<ScatterAddOp>(0, 1000), {f32_type({4096, 64}), {DType::i32, {4096, 64}}}},
          {std::make_shared<ArgExtremeOp>(Reduction::max, 1), {f32_type({512, 1000})}},
          {std::make_shared<OneHotOp>(1000, DType::f32), {{DType::i32, {512}}}},
          {std::make_shared<CrossEntropyOp>(Targets{0.1}), {f32_type({512, 1000}), {DType::i32, {512}}}},
          {std::make_shared<EmbeddingBagOp>(false), {table, table, ids}},
          {std::make_shared<EmbeddingBagGradOp>(true, std::vector<std::int64_t>{1000, 1000}),
           {f32_type({1024, 2, 64}), ids}},
          {std::make_shared<SparseSgdUpdateOp>(TableGradient{}),
           {table, f32_type({}), {DType::i32, {2048}}, f32_type({2048, 64})}},
          {std::make_shared<AttentionOp>(heads), {qkv}},
          {std::make_shared<AttentionGradOp>(heads), {qkv, y_of_heads, f32_type({4, 4, 160}), y_of_heads}}};
}

// One execution of a prepared kernel, with its own operands and workspace.
class Execution {
 public:
  Execution(const OpOnTypes& o, const Kernel& kernel, std::mt19937_64& rng)
      : kernel_(kernel), workspace_(kernel.workspace()) {
    for (const auto& t : o.inputs) {
      inputs_.push_back(t.dtype == DType::f32 ? draw({t, 0.1, 1}, 0, 1, rng) : Tensor::zeros(t));
      in_.push_back(inputs_.back().data());
    }
    for (const auto& t : o.op->infer(o.inputs)) {
      outputs_.push_back(Tensor::zeros(t));
      out_.push_back(outputs_.back().data());
    }
  }
  void run() { kernel_.run({in_.data(), out_.data(), workspace_.data(), 0, &alone_}); }
  std::vector<std::byte> result() const {
    std::vector<std::byte> all;
    for (const auto& t : outputs_) {
      const auto* bytes = static_cast<const std::byte*>(t.data());
      all.insert(all.end(), bytes, bytes + t.type().bytes());
    }
    return all;
  }

 private:
  const Kernel& kernel_;
  Buffer workspace_;
  RankContext alone_;
  Tensors inputs_, outputs_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

KernelPtr prepare(const OpOnTypes& o, int threads) {
  const Types outputs = o.op->infer(o.inputs);
  return cpu_kernels().make({*o.op, o.inputs, outputs, {}, threads});
}

void prepare_and_run(const OpOnTypes& o, int threads, std::mt19937_64& rng) {
  const KernelPtr kernel = prepare(o, threads);
  Execution(o, *kernel, rng).run();
}

TEST(CpuKernels, OneKernelServesManyLanesAtOnce) {
  auto rng = generator("lanes");
  std::vector<OpOnTypes> ops = library_ops();
  for (const auto& o : own_ops()) ops.push_back(o);
  for (const auto& o : ops) {
    const KernelPtr kernel = prepare(o, 1);
    constexpr std::size_t kLanes = 6;  // more than a primitive has sets of arguments
    std::vector<Execution> lanes;
    std::vector<std::vector<std::byte>> expected;
    for (std::size_t i = 0; i < kLanes; ++i) {
      lanes.emplace_back(o, *kernel, rng);
      const TeamSize team(1);
      lanes.back().run();
      expected.push_back(lanes.back().result());
    }
    std::vector<std::thread> threads;
    for (auto& lane : lanes)
      threads.emplace_back([&lane] {
        const TeamSize team(1);
        for (int i = 0; i < 20; ++i) lane.run();
      });
    for (auto& t : threads) t.join();
    for (std::size_t i = 0; i < kLanes; ++i)
      EXPECT_EQ(lanes[i].result(), expected[i]) << o.op->name() << " on lane " << i;
  }
}

// LSTMs, too, whose products are the library's: each thread computes those of its own rows.
TEST(CpuKernels, ResultsDoNotDependOnTheSizeOfTheTeam) {
  std::vector<OpOnTypes> ops = own_ops();
  for (const auto& o : library_ops())
    if (o.op->name().starts_with("lstm")) ops.push_back(o);
  for (const auto& o : ops) {
    std::vector<std::vector<std::byte>> results;
    for (const int threads : {1, 2, 3, 5}) {
      auto rng = generator("teams");  // the same operands
      const TeamSize team(threads);
      const KernelPtr kernel = prepare(o, threads);
      Execution execution(o, *kernel, rng);
      execution.run();
      results.push_back(execution.result());
    }
    for (const auto& result : results) EXPECT_TRUE(result == results[0]) << signature(*o.op, o.inputs);
  }
}

long allocations_of_a_run(const OpOnTypes& o, std::mt19937_64& rng) {
  const TeamSize team(2);
  const KernelPtr kernel = prepare(o, 2);
  Execution execution(o, *kernel, rng);
  for (int i = 0; i < 3; ++i) execution.run();
  const long before = allocations();
  execution.run();
  return allocations() - before;
}

TEST(CpuKernels, RunningAllocatesNothing) {
  auto rng = generator("allocations");
  for (const auto& o : own_ops()) EXPECT_EQ(allocations_of_a_run(o, rng), 0) << o.op->name();
}

// OpenMP ends the surplus threads when a team shrinks, and starting new ones costs more than a kernel.
TEST(CpuKernels, KernelsOfAllSizesReuseOneTeam) {
  constexpr int kThreads = 5;
  auto rng = generator("team");
  const TeamSize team(kThreads);
  std::vector<OpOnTypes> ops = own_ops();
  const Pool2dOptions pool(2);
  for (std::int64_t rows : {1, 2, 3, 4, 60, 1000, 4000}) {  // from less than a team's work to more
    const TensorType x = f32_type({rows, 300}), image = f32_type({1, rows, 2, 300}), c = f32_type({300});
    ops.push_back({std::make_shared<BatchNormOp>(1e-5), {x, c, c}});
    ops.push_back({std::make_shared<SoftmaxOp>(false), {x}});
    ops.push_back({std::make_shared<ReduceOp>(Reduction::sum, std::vector{0, 1}, false), {x}});
    ops.push_back({std::make_shared<TransposeOp>(std::vector{1, 0}), {x}});
    ops.push_back({std::make_shared<DropoutOp>(0.5), {x, {DType::i64, {}}}});
    ops.push_back({std::make_shared<SgdUpdateOp>(SgdOptions{}), {x, x, f32_type({})}});
    ops.push_back({std::make_shared<AvgPool2dGradOp>(pool, Size2(2 * rows, 4)), {image}});
  }
  const TensorType image = f32_type({1, 4, 4, 16}), weights = f32_type({32, 3, 3, 16});  // a shape for oneDNN
  ops.push_back({std::make_shared<Conv2dOp>(Conv2dOptions{.padding = 1}), {image, weights}});
  ops.push_back({std::make_shared<MatMulOp>(MatMulOptions{}), {f32_type({3, 40}), f32_type({40, 50})}});
  prepare_and_run(own_ops().front(), kThreads, rng);  // starts the team
  const auto before = threads_of_process();
  for (const auto& o : ops) {
    prepare_and_run(o, kThreads, rng);
    ASSERT_EQ(threads_of_process(), before) << "after " << signature(*o.op, o.inputs);
  }
}

// oneDNN keeps the arguments of each execution in a small table.
TEST(CpuKernels, LibraryPrimitivesAllocateTheirArgumentTableAtMost) {
  auto rng = generator("library allocations");
  for (const auto& o : library_ops()) {
    const long products = o.inputs[0].rank() == 3 ? o.inputs[0].shape[0] : 1;
    EXPECT_LE(allocations_of_a_run(o, rng), 40 * products) << o.op->name();
  }
}

TEST(CpuKernels, BiasOfAProductIsAddedToItsRoundedSum) {
  auto rng = generator("bias");
  for (const auto& [m, k, n] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1},
                                                                        {7, 3, 5},
                                                                        {1, 300, 1},
                                                                        {1, 512, 33},
                                                                        {64, 64, 64},
                                                                        {128, 512, 10},
                                                                        {129, 1000, 257},
                                                                        {32, 4096, 100}}) {
    const Tensor x = draw(f32({m, k}), 0, 1, rng), w = draw(f32({n, k}), 0, 1, rng),
                 b = draw(f32({n}, -30, 30), 0, 1, rng);
    EXPECT_EQ(linear(x, w, b).values(), add(linear(x, w), b).values()) << m << "x" << k << "x" << n;
  }
}

// The result of a kernel computed in f32 or in bf16, and the size of its scratch.
struct Computed {
  Tensors outputs;
  std::int64_t workspace;
};
Computed compute(const OpPtr& op, const Tensors& inputs) {
  Types types;
  for (const Tensor& t : inputs) types.push_back(t.type());
  const Types outputs = op->infer(types);
  return {evaluate(cpu_kernels(), op, inputs), cpu_kernels().make({*op, types, outputs, {}, 2})->workspace()};
}

// Norms and pooling of an image. Parameters and statistics stay f32; the numbers of channels are below, at,
// and above the block size.
std::vector<OpOnTypes> image_ops(std::int64_t channels) {
  const TensorType x = f32_type({3, 9, 7, channels}), c = f32_type({channels}), g = f32_type({3, 1}),
                   y = f32_type({3, 4, 3, channels});
  const Pool2dOptions two(2), three(3, 2, 1);
  const TensorType z = AvgPool2dOp(three).infer(std::vector{x})[0];
  return {{std::make_shared<BatchNormOp>(1e-5), {x, c, c}},
          {std::make_shared<BatchNormStatisticsOp>(1e-5), {x}},
          {std::make_shared<BatchNormSumsOp>(x.dtype), {x, c, x}},
          {std::make_shared<GroupNormOp>(1, 1e-5, true), {x, c, c}},
          {std::make_shared<GroupNormGradOp>(1, true), {x, c, x, g, g}},
          {std::make_shared<GroupNormOp>(1, 1e-5, false), {x, c}},
          {std::make_shared<GroupNormGradOp>(1, false), {x, c, x, g}},
          {std::make_shared<MaxPool2dOp>(two), {x}},
          {std::make_shared<MaxPool2dGradOp>(two, Size2{9, 7}), {y, {DType::u8, y.shape}}},
          {std::make_shared<AvgPool2dOp>(three), {x}},
          {std::make_shared<AvgPool2dGradOp>(three, Size2{9, 7}), {z}}};
}

// One pass without copies in f32: the scratch of f32, and the bits of its rounded results.
TEST(CpuKernels, SixteenBitNormsAndPoolingRoundTheResultsOfF32) {
  auto rng = generator("bf16 norms");
  for (std::int64_t channels : {1, 5, 16, 64, 130})
    for (const OpOnTypes& o : image_ops(channels)) {
      Tensors narrow, wide;
      for (TensorType t : o.inputs) {
        if (t.rank() == 4 && t.dtype == DType::f32) t.dtype = DType::bf16;
        narrow.push_back(draw({t, t.rank() == 4 ? -1.0 : 0.5, t.dtype == DType::u8 ? 0.0 : 1.0}, 0, 1, rng));
        wide.push_back(t.dtype == DType::bf16 ? cast(narrow.back(), DType::f32) : narrow.back());
      }
      const Computed expected = compute(o.op, wide), actual = compute(o.op, narrow);
      EXPECT_EQ(actual.workspace, expected.workspace) << o.op->name();
      for (std::size_t i = 0; i < expected.outputs.size(); ++i)
        EXPECT_EQ(actual.outputs[i].values(), cast(expected.outputs[i], actual.outputs[i].dtype()).values())
            << o.op->name() << " of " << channels << " channels, output " << i;
    }
}

std::vector<double> as_f32(const Tensors& inputs, const OpPtr& op) {
  Tensors wide;
  for (const auto& t : inputs) wide.push_back(cast(t, DType::f32));
  return apply_op(op, wide)[0].values();
}

// By oneDNN's own sixteen-bit kernels, or through f32 if the processor or the build has none.
TEST(CpuKernels, SixteenBitProductsMatchF32ProductsOfTheirOperands) {
  auto rng = generator("bf16");
  for (OpOnTypes o : library_ops()) {
    Tensors inputs;
    for (auto& t : o.inputs) {
      t.dtype = DType::bf16;
      inputs.push_back(draw({t, -1, 1}, 0, 1, rng));
    }
    const std::vector<double> narrow = apply_op(o.op, inputs)[0].values();
    EXPECT_LE(relative_difference(narrow, as_f32(inputs, o.op)), 1.0 / 256) << o.op->name();
  }
}

}  // namespace
}  // namespace tandem::testing
