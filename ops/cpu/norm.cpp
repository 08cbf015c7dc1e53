// Batch norm of f32 or bf16, computed in f32. The rows are cut into blocks that fit into a core's cache. Each
// block has its own mean and sum of squares around it; these are combined in double, in the order of the
// blocks. x is read from memory once for the statistics and once to normalize it, and the result is the same
// for every team.
#include <algorithm>
#include <cmath>

#include <tandem/core/base/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/tiled_expression.h>
#include <tandem/ops/norm.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kLanes = 128;  // several narrow rows are handled as one row of at least this width
constexpr std::int64_t kBlockElements = 32 << 10;
constexpr std::int64_t kBlocks = 64;  // wanted number of blocks

// sums[j] = Σ x[j + r·width] over `elements` in rows of `width`; the last row can be incomplete.
template <class E>
TANDEM_CLONES void sum_rows(const E* x, std::int64_t elements, std::int64_t width, float* sums) {
  std::fill_n(sums, width, 0.0f);
  std::int64_t i = 0;
  for (; i + 4 * width <= elements; i += 4 * width) {
    const E *a = x + i, *b = a + width, *c = b + width, *d = c + width;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < width; ++j) sums[j] += (a[j] + b[j]) + (c[j] + d[j]);
  }
  for (; i < elements; i += width) {
    const std::int64_t n = std::min(width, elements - i);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) sums[j] += x[i + j];
  }
}

// sums[j] = Σ (x[j + r·width] − mean[j])² over the same rows.
template <class E>
TANDEM_CLONES void sum_squares(const E* x, std::int64_t elements, std::int64_t width, const float* mean,
                               float* sums) {
  std::fill_n(sums, width, 0.0f);
  std::int64_t i = 0;
  for (; i + 2 * width <= elements; i += 2 * width) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < width; ++j) {
      const float a = x[i + j] - mean[j], b = x[i + width + j] - mean[j];
      sums[j] += a * a + b * b;
    }
  }
  for (; i < elements; i += width) {
    const std::int64_t n = std::min(width, elements - i);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) sums[j] += (x[i + j] - mean[j]) * (x[i + j] - mean[j]);
  }
}

// Adds g and g·(x − mean) to the sums of their lanes, row by row. The first element belongs to lane `lane`,
// so the sums do not depend on how the rows are cut into calls.
template <class E>
TANDEM_CLONES void add_gradients(const E* x, const float* g, std::int64_t elements, std::int64_t lane,
                                 std::int64_t width, const float* mean, float* sums, float* products) {
  for (std::int64_t i = 0; i < elements;) {
    const std::int64_t end = std::min(width, lane + elements - i);
    const float* gi = g + i - lane;
    const E* xi = x + i - lane;
#pragma GCC ivdep
    for (std::int64_t j = lane; j < end; ++j) {
      sums[j] += gi[j];
      products[j] += gi[j] * (xi[j] - mean[j]);
    }
    i += end - lane;
    lane = 0;
  }
}

// y = (x − mean)·scale + beta; y can be x.
template <class E>
TANDEM_CLONES void normalize(const E* x, std::int64_t elements, std::int64_t width, const float* mean,
                             const float* scale, const float* beta, E* y) {
  for (std::int64_t i = 0; i < elements; i += width) {
    const std::int64_t n = std::min(width, elements - i);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < n; ++j) y[i + j] = (x[i + j] - mean[j]) * scale[j] + beta[j];
  }
}

// Cuts (rows, channels) into blocks. `group` rows are handled as one row of `width` lanes.
struct Blocks {
  std::int64_t channels, elements, group, width, block, count;
  int threads;

  explicit Blocks(const KernelSpec& spec)  // for input 0
      : channels(spec.inputs[0].shape.back()),
        elements(spec.inputs[0].elements()),
        group((kLanes + channels - 1) / channels),
        width(group * channels),
        threads(useful_threads(spec.threads, 2 * spec.inputs[0].bytes())) {
    const std::int64_t wanted = std::clamp(elements / kBlocks, kBlockElements / 8, kBlockElements);
    block = std::max<std::int64_t>(4, wanted / width) * width;
    count = (elements + block - 1) / block;
  }
  std::int64_t begin(std::int64_t b) const { return b * block; }
  std::int64_t length(std::int64_t b) const { return std::min(block, elements - b * block); }
  double rows(std::int64_t b) const { return static_cast<double>(length(b) / channels); }
  double rows() const { return static_cast<double>(elements / channels); }

  // Adds up the sums of the lanes of each channel, leaving one sum per channel.
  void fold(float* sums) const {
    for (std::int64_t j = channels; j < width; ++j) sums[j % channels] += sums[j];
  }
  // Copies one value per channel to one value per lane.
  void spread(float* values) const {
    for (std::int64_t j = channels; j < width; ++j) values[j] = values[j % channels];
  }
  // Calls f(begin, end) for each thread's blocks.
  template <class F> void each_part(const F& f) const { parallel_parts(threads, count, f); }
  template <class F> void each_channel(const F& f) const {
    parallel_parts(count * channels < kBlockElements ? 1 : threads, channels,
                   [&](std::int64_t first, std::int64_t end) {
                     for (std::int64_t c = first; c < end; ++c) f(c);
                   });
  }
};

// The workspace: two rows of lanes per block, then `kParameters` rows that all blocks share.
constexpr std::int64_t kParameters = 3;
std::int64_t workspace_of(const Blocks& b) {
  return (2 * b.count + kParameters) * b.width * static_cast<std::int64_t>(sizeof(float));
}
struct Scratch {
  const Blocks& blocks;
  float* data;
  float* first(std::int64_t block) const { return data + 2 * block * blocks.width; }
  float* second(std::int64_t block) const { return first(block) + blocks.width; }
  float* parameter(std::int64_t i) const { return first(blocks.count) + i * blocks.width; }
};

struct Statistics {
  float *mean, *variance, *inv_std;
};

// Computes each block's mean and sum of squares around it, then combines the blocks.
template <class E>
void find_statistics(const Blocks& blocks, const E* x, double epsilon, const Scratch& scratch,
                     const Statistics& s) {
  blocks.each_part([&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const E* block = x + blocks.begin(b);
      float *mean = scratch.first(b), *squares = scratch.second(b);
      sum_rows(block, blocks.length(b), blocks.width, mean);
      blocks.fold(mean);
      for (std::int64_t c = 0; c < blocks.channels; ++c) mean[c] /= static_cast<float>(blocks.rows(b));
      blocks.spread(mean);
      sum_squares(block, blocks.length(b), blocks.width, mean, squares);
      blocks.fold(squares);
    }
  });
  blocks.each_channel([&](std::int64_t c) {
    double sum = 0, squares = 0;
    for (std::int64_t b = 0; b < blocks.count; ++b)
      sum += blocks.rows(b) * static_cast<double>(scratch.first(b)[c]);
    const double mean = sum / blocks.rows();
    for (std::int64_t b = 0; b < blocks.count; ++b) {
      const double d = static_cast<double>(scratch.first(b)[c]) - mean;
      squares += static_cast<double>(scratch.second(b)[c]) + blocks.rows(b) * d * d;
    }
    const double variance = squares / blocks.rows();
    s.mean[c] = static_cast<float>(mean);
    s.variance[c] = static_cast<float>(variance);
    s.inv_std[c] = static_cast<float>(1 / std::sqrt(variance + epsilon));
  });
}

template <class E> KernelPtr make_batch_norm(const KernelSpec& spec) {
  const auto run = [blocks = Blocks(spec),
                    epsilon = static_cast<const BatchNormOp&>(spec.op).epsilon](const Launch& l) {
    const E* x = input<E>(l, 0);
    const Scratch scratch{blocks, static_cast<float*>(l.workspace)};
    const Statistics s{output<float>(l, 1), output<float>(l, 2), output<float>(l, 3)};
    find_statistics(blocks, x, epsilon, scratch, s);
    float *means = scratch.parameter(0), *scales = scratch.parameter(1), *betas = scratch.parameter(2);
    for (std::int64_t c = 0; c < blocks.channels; ++c) {
      means[c] = s.mean[c];
      scales[c] = s.inv_std[c] * input<float>(l, 1)[c];
      betas[c] = input<float>(l, 2)[c];
    }
    for (float* p : {means, scales, betas}) blocks.spread(p);
    blocks.each_part([&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = end; b-- > begin;)  // backwards, because the last blocks are still in cache
        normalize(x + blocks.begin(b), blocks.length(b), blocks.width, means, scales, betas,
                  output<E>(l, 0) + blocks.begin(b));
    });
  };
  return make_kernel(run, workspace_of(Blocks(spec)));
}

template <class E> KernelPtr make_statistics(const KernelSpec& spec) {
  const auto run = [blocks = Blocks(spec),
                    epsilon = static_cast<const BatchNormStatisticsOp&>(spec.op).epsilon](const Launch& l) {
    find_statistics(blocks, input<E>(l, 0), epsilon, {blocks, static_cast<float*>(l.workspace)},
                    {output<float>(l, 0), output<float>(l, 1), output<float>(l, 2)});
  };
  return make_kernel(run, workspace_of(Blocks(spec)));
}

template <class E> KernelPtr make_sums(const KernelSpec& spec) {
  const auto gradient = TiledExpression::make(static_cast<const BatchNormSumsOp&>(spec.op).rounded(),
                                              spec.inputs.subspan(2), {DType::f32, spec.inputs[0].shape});
  if (!gradient) return nullptr;
  const auto run = [blocks = Blocks(spec), gradient = *gradient](const Launch& l) {
    const Scratch scratch{blocks, static_cast<float*>(l.workspace)};
    float* mean = scratch.parameter(0);
    std::copy_n(input<float>(l, 1), blocks.channels, mean);
    blocks.spread(mean);
    blocks.each_part([&](std::int64_t begin, std::int64_t end) {
      std::fill_n(scratch.first(begin), 2 * (end - begin) * blocks.width, 0.0f);
      const std::int64_t last = blocks.begin(end - 1) + blocks.length(end - 1);
      gradient.visit(l.in + 2, blocks.begin(begin), last,
                     [&](std::int64_t first, std::int64_t count, const float* g) {
                       for (std::int64_t n; count > 0; first += n, g += n, count -= n) {
                         const std::int64_t b = first / blocks.block, lane = first % blocks.block;
                         n = std::min(count, blocks.length(b) - lane);
                         add_gradients(input<E>(l, 0) + first, g, n, lane % blocks.width, blocks.width, mean,
                                       scratch.first(b), scratch.second(b));
                       }
                     });
      for (std::int64_t b = begin; b < end; ++b) {
        blocks.fold(scratch.first(b));
        blocks.fold(scratch.second(b));
      }
    });
    blocks.each_channel([&](std::int64_t c) {
      double sum = 0, product = 0;
      for (std::int64_t b = 0; b < blocks.count; ++b) {
        sum += static_cast<double>(scratch.first(b)[c]);
        product += static_cast<double>(scratch.second(b)[c]);
      }
      output<float>(l, 0)[c] = static_cast<float>(sum);
      output<float>(l, 1)[c] = static_cast<float>(product);
    });
  };
  return make_kernel(run, workspace_of(Blocks(spec)));
}

}  // namespace

KernelPtr make_batch_norm_cpu(const KernelSpec& spec) {
  return make_for<float, BFloat16>(spec.inputs[0].dtype,
                                   [&](auto zero) { return make_batch_norm<decltype(zero)>(spec); });
}
KernelPtr make_batch_norm_statistics_cpu(const KernelSpec& spec) {
  return make_for<float, BFloat16>(spec.inputs[0].dtype,
                                   [&](auto zero) { return make_statistics<decltype(zero)>(spec); });
}
KernelPtr make_batch_norm_sums_cpu(const KernelSpec& spec) {
  return make_for<float, BFloat16>(spec.inputs[0].dtype,
                                   [&](auto zero) { return make_sums<decltype(zero)>(spec); });
}

}  // namespace tandem::engine
