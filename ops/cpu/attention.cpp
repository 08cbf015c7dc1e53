// Attention tile by tile: a tile has the products of some queries with some keys of one head. Each head of a
// sample is computed by one thread, so bits do not depend on the size of the team.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <tandem/core/base/clones.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/team.h>
#include <tandem/ops/attention_operands.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/softmax_row.h>
#include <tandem/ops/cpu/uniforms.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kQueries = 128, kKeys = 256;  // of a tile: 128 KiB
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// x = x·factor + bias; without a bias, x = x·factor.
TANDEM_CLONES void scale_and_add(float* x, const float* bias, std::int64_t n, float factor) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * factor + bias[i];
}

TANDEM_CLONES void multiply(float* y, const float* by, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] *= by[i];
}

// Of weights p: gradient = p·(gradient − mean)·factor.
TANDEM_CLONES void weight_gradient(const float* p, float* gradient, std::int64_t n, float mean,
                                   float factor) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) gradient[i] = p[i] * (gradient[i] - mean) * factor;
}

TANDEM_CLONES float dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kLanes = 16;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t k = 0; k < kLanes; ++k) lanes[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) lanes[i % kLanes] += a[i] * b[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// What one thread needs for a head.
struct Scratch {
  float *weights, *gradients;  // a tile each
  float *largest, *sums;       // of the rows of a tile
  float* means;                // of the weights' gradients, by query
  float* bias;                 // 0 for keys that may be seen, −∞ for others
  float* kept;                 // of a row of a tile: what dropout multiplies the weights by

  static std::int64_t floats(const AttentionSize& s) {
    return 2 * kQueries * kKeys + 2 * kQueries + padded(s.queries) + padded(s.keys) + kKeys;
  }
  Scratch(float* at, const AttentionSize& s)
      : weights(at),
        gradients(weights + kQueries * kKeys),
        largest(gradients + kQueries * kKeys),
        sums(largest + kQueries),
        means(sums + kQueries),
        bias(means + padded(s.queries)),
        kept(bias + padded(s.keys)) {}
  static std::int64_t padded(std::int64_t n) { return (n + 15) / 16 * 16; }
};

// The part of a head that a tile has.
struct Tile {
  std::int64_t query, queries, key, keys;
  // The number of keys, from the first of the tile on, that row r of it may see.
  std::int64_t visible(std::int64_t r, bool causal) const {
    return causal ? std::clamp<std::int64_t>(query + r - key + 1, 0, keys) : keys;
  }
};

// One head of one sample.
class Head {
 public:
  Head(const AttentionForm& form, const AttentionDropout& dropout, const AttentionOperands<float>& o,
       const Launch& l, std::int64_t item, Scratch scratch)
      : form_(form),
        dropout_(dropout),
        size_(dropout.size),
        o_(o),
        sample_(item / size_.heads),
        head_(item % size_.heads),
        scratch_(scratch) {
    if (o_.has_seed) key_ = dropout_.key(l), drawn_ = dropout_.sample(l, sample_);
    if (o_.key_mask)
      for (std::int64_t s = 0; s < size_.keys; ++s)
        scratch_.bias[s] = o_.key_mask[sample_ * size_.keys + s] ? 0.0f : -kInfinity;
  }

  void attend(float* y, float* log_sums) {
    y += place(0, size_.queries, size_.width());
    log_sums += (sample_ * size_.heads + head_) * size_.queries;
    for (std::int64_t t = 0; t < size_.queries; t += kQueries) {
      const std::int64_t rows = std::min(kQueries, size_.queries - t);
      float* const result = y + t * size_.width();
      std::fill_n(scratch_.largest, rows, -kInfinity);
      std::fill_n(scratch_.sums, rows, 0.0f);
      for (std::int64_t s = 0; s < (form_.causal ? std::min(size_.keys, t + rows) : size_.keys); s += kKeys) {
        const Tile tile{t, rows, s, std::min(kKeys, size_.keys - s)};
        multiply_queries_by_keys(tile);
        for (std::int64_t r = 0; r < rows; ++r) {
          const float shrink = add_weights(tile, r);
          if (s > 0) scale_row(result + r * size_.width(), size_.features, shrink);
        }
        check(onednn::gemm({scratch_.weights, kKeys}, values(tile), result, size_.width(), rows,
                           size_.features, tile.keys, /*adds=*/s > 0));
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        const float sum = scratch_.sums[r];
        if (sum == 0)  // it sees no key
          std::fill_n(result + r * size_.width(), size_.features, 0.0f);
        else
          scale_row(result + r * size_.width(), size_.features, 1 / sum);
        log_sums[t + r] = sum == 0 ? -kInfinity : scratch_.largest[r] + std::log(sum);
      }
    }
  }

  void differentiate(const float* y, const float* log_sums, const float* dy,
                     const AttentionGradients<float>& to) {
    const std::int64_t width = size_.width(), results = place(0, size_.queries, width);
    y += results, dy += results;
    log_sums += (sample_ * size_.heads + head_) * size_.queries;
    float* const dq = to.q + place(0, size_.queries, o_.stride);
    for (std::int64_t t = 0; t < size_.queries; ++t)
      scratch_.means[t] = dot(y + t * width, dy + t * width, size_.features);
    for (std::int64_t s = 0; s < size_.keys; s += kKeys) {
      const std::int64_t keys = std::min(kKeys, size_.keys - s), at = place(s, size_.keys, o_.stride);
      float *const dk = to.k + at, *const dv = to.v + at;
      bool adds = false;
      for (std::int64_t t = form_.causal ? s / kQueries * kQueries : 0; t < size_.queries; t += kQueries) {
        const Tile tile{t, std::min(kQueries, size_.queries - t), s, keys};
        multiply_queries_by_keys(tile);
        const float* const dy_of_tile = dy + t * width;
        check(onednn::gemm({dy_of_tile, width}, {values(tile).data, o_.stride, true}, scratch_.gradients,
                           kKeys, tile.queries, keys, size_.features, false));
        for (std::int64_t r = 0; r < tile.queries; ++r) differentiate_weights(tile, r, log_sums[t + r]);
        check(onednn::gemm({scratch_.weights, kKeys, true}, {dy_of_tile, width}, dv, o_.stride, keys,
                           size_.features, tile.queries, adds));
        check(onednn::gemm({scratch_.gradients, kKeys, true}, queries(tile), dk, o_.stride, keys,
                           size_.features, tile.queries, adds));
        check(onednn::gemm({scratch_.gradients, kKeys}, {keys_of(tile), o_.stride}, dq + t * o_.stride,
                           o_.stride, tile.queries, size_.features, keys, /*adds=*/s > 0));
        adds = true;
      }
      for (std::int64_t p = 0; p < keys && !adds; ++p) {  // no query sees them
        std::fill_n(dk + p * o_.stride, size_.features, 0.0f);
        std::fill_n(dv + p * o_.stride, size_.features, 0.0f);
      }
    }
  }

  int status() const { return status_; }

 private:
  void check(int status) { status_ = status_ ? status_ : status; }

  // The place of a position's first feature, in operands with a distance of `stride` between positions.
  std::int64_t place(std::int64_t position, std::int64_t positions, std::int64_t stride) const {
    return (sample_ * positions + position) * stride + head_ * size_.features;
  }
  onednn::Matrix queries(const Tile& t) const {
    return {o_.q + place(t.query, size_.queries, o_.stride), o_.stride};
  }
  const float* keys_of(const Tile& t) const { return o_.k + place(t.key, size_.keys, o_.stride); }
  onednn::Matrix values(const Tile& t) const {
    return {o_.v + place(t.key, size_.keys, o_.stride), o_.stride};
  }

  void multiply_queries_by_keys(const Tile& tile) {
    check(onednn::gemm(queries(tile), {keys_of(tile), o_.stride, true}, scratch_.weights, kKeys, tile.queries,
                       tile.keys, size_.features, false));
  }
  float* row_of(float* tile, std::int64_t r) const { return tile + r * kKeys; }

  // Turns products into scores.
  void score(const Tile& tile, float* row, std::int64_t n) const {
    if (o_.key_mask)
      scale_and_add(row, scratch_.bias + tile.key, n, static_cast<float>(form_.scale));
    else
      scale_row(row, n, static_cast<float>(form_.scale));
  }

  // Turns the products of a row of the tile into weights. Returns by what the sums over earlier keys shrink.
  float add_weights(const Tile& tile, std::int64_t r) {
    float* const row = row_of(scratch_.weights, r);
    const std::int64_t n = tile.visible(r, form_.causal);
    score(tile, row, n);
    const float before = scratch_.largest[r], largest = std::max(before, row_max(row, n)),
                shift = largest == -kInfinity ? 0.0f : largest, shrink = std::exp(before - shift);
    scratch_.sums[r] = scratch_.sums[r] * shrink + exp_row(row, row, n, shift);
    scratch_.largest[r] = largest;
    std::fill(row + n, row + tile.keys, 0.0f);
    if (o_.has_seed) {
      draw(tile, r, n);
      multiply(row, scratch_.kept, n);
    }
    return shrink;
  }

  // Turns the products of a row of the tile into weights, after dropout, and the gradients of these into
  // those of the products.
  void differentiate_weights(const Tile& tile, std::int64_t r, float log_sum) {
    float *const row = row_of(scratch_.weights, r), *const gradients = row_of(scratch_.gradients, r);
    const std::int64_t n = log_sum == -kInfinity ? 0 : tile.visible(r, form_.causal);
    score(tile, row, n);
    exp_row(row, row, n, log_sum);
    if (o_.has_seed) {
      draw(tile, r, n);
      multiply(gradients, scratch_.kept, n);
    }
    weight_gradient(row, gradients, n, scratch_.means[tile.query + r], static_cast<float>(form_.scale));
    if (o_.has_seed) multiply(row, scratch_.kept, n);
    std::fill(row + n, row + tile.keys, 0.0f);
    std::fill(gradients + n, gradients + tile.keys, 0.0f);
  }

  // Draws what dropout does with the first n weights of a row. Short rows share a block of draws.
  void draw(const Tile& tile, std::int64_t r, std::int64_t n) {
    const std::int64_t quads = (dropout_.row_elements + 3) / 4,
                       first = dropout_.element(head_, tile.query + r, tile.key);
    const auto factor = static_cast<float>(1 / (1 - form_.dropout));
    for (std::int64_t i = 0; i < n;) {
      const std::int64_t quad = (first + i) / 4;
      if (quad < drawn_from_ || quad >= drawn_from_ + kQuads) {
        uniforms(key_, drawn_, quads, quad, draws_);
        drawn_from_ = quad;
      }
      const std::int64_t skip = first + i - 4 * drawn_from_, count = std::min(n - i, 4 * kQuads - skip);
      for (std::int64_t d = 0; d < count; ++d)
        scratch_.kept[i + d] = dropout_.keeps(draws_[skip + d]) ? factor : 0.0f;
      i += count;
    }
  }

  const AttentionForm& form_;
  const AttentionDropout& dropout_;
  const AttentionSize& size_;
  const AttentionOperands<float>& o_;
  const std::int64_t sample_, head_;
  Scratch scratch_;
  RngKey key_{};
  std::uint64_t drawn_ = 0;            // the number of the sample
  std::int64_t drawn_from_ = -kQuads;  // the first of the quads that draws_ holds
  float draws_[4 * kQuads];
  int status_ = 0;
};

// Calls `compute(head)` for every head of every sample.
class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const KernelSpec& spec, const AttentionForm& form, double flops)
      : form_(form),
        dropout_(spec, form, attention_size(form, spec.inputs)),
        threads_(flops < kTeamFlops ? 1 : spec.threads) {}
  std::int64_t workspace() const override {
    return threads_ * Scratch::floats(size()) * static_cast<std::int64_t>(sizeof(float));
  }

 protected:
  template <class F> void each_head(const Launch& l, const F& compute) const {
    const TeamSize alone(1);  // of each product
    const AttentionOperands<float> operands(form_, size(), l);
    std::atomic<std::int64_t> next{0};
    std::atomic<int> failed{0};
    parallel_parts(threads_, size().samples * size().heads, [&](std::int64_t begin, std::int64_t end) {
      const Scratch scratch(static_cast<float*>(l.workspace) + next.fetch_add(1) * Scratch::floats(size()),
                            size());
      for (std::int64_t item = begin; item < end; ++item) {
        Head head(form_, dropout_, operands, l, item, scratch);
        compute(head);
        if (head.status()) failed = head.status();
      }
    });
    if (failed) throw Error(fmt::format("oneDNN: a product of attention failed with status {}", failed));
  }
  const AttentionSize& size() const { return dropout_.size; }

  const AttentionForm form_;

 private:
  const AttentionDropout dropout_;
  const int threads_;
};

class ForwardKernel final : public AttentionKernel {
 public:
  using AttentionKernel::AttentionKernel;
  void run(const Launch& l) const override {
    each_head(l, [&](Head& head) { head.attend(output<float>(l, 0), output<float>(l, 1)); });
  }
};

class BackwardKernel final : public AttentionKernel {
 public:
  BackwardKernel(const KernelSpec& spec, const AttentionForm& form, double flops)
      : AttentionKernel(spec, form, flops), results_(static_cast<int>(spec.inputs.size()) - 3) {}
  void run(const Launch& l) const override {
    const AttentionGradients<float> to(form_, size(), l);
    each_head(l, [&](Head& head) {
      head.differentiate(input<float>(l, results_), input<float>(l, results_ + 1),
                         input<float>(l, results_ + 2), to);
    });
  }

 private:
  const int results_;  // the number of the operand y
};

}  // namespace

KernelPtr make_attention_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32 || !onednn::has_gemm()) return nullptr;
  const double flops = spec.op.cost(spec.inputs, spec.outputs).flops;
  return std::make_unique<ForwardKernel>(spec, static_cast<const AttentionOp&>(spec.op).form, flops);
}

KernelPtr make_attention_grad_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32 || !onednn::has_gemm()) return nullptr;
  const double flops = spec.op.cost(spec.inputs, spec.outputs).flops;
  return std::make_unique<BackwardKernel>(spec, static_cast<const AttentionGradOp&>(spec.op).form, flops);
}

}  // namespace tandem::engine
