#include <cmath>
#include <limits>
#include <vector>

#include <tandem/ops/attention_operands.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One head of one sample, in double.
template <class T> class Head {
 public:
  Head(const AttentionForm& form, const AttentionDropout& dropout, const AttentionOperands<T>& operands,
       const Launch& l, std::int64_t sample, std::int64_t head)
      : form_(form),
        dropout_(dropout),
        size_(dropout.size),
        o_(operands),
        l_(l),
        sample_(sample),
        head_(head) {}

  bool sees(std::int64_t t, std::int64_t s) const {
    return (!form_.causal || s <= t) && (!o_.key_mask || o_.key_mask[sample_ * size_.keys + s]);
  }
  // The place of a position's first feature, in operands with a distance of `stride` between positions.
  std::int64_t at(std::int64_t position, std::int64_t positions, std::int64_t stride) const {
    return (sample_ * positions + position) * stride + head_ * size_.features;
  }
  std::int64_t query(std::int64_t t) const { return at(t, size_.queries, o_.stride); }
  std::int64_t key(std::int64_t s) const { return at(s, size_.keys, o_.stride); }
  std::int64_t result(std::int64_t t) const { return at(t, size_.queries, size_.width()); }
  std::int64_t log_sum(std::int64_t t) const { return (sample_ * size_.heads + head_) * size_.queries + t; }

  double product(const T* a, const T* b) const {
    double sum = 0;
    for (std::int64_t d = 0; d < size_.features; ++d) sum += static_cast<double>(a[d]) * b[d];
    return sum;
  }
  // The logarithm of a weight before its division by their sum.
  double score(std::int64_t t, std::int64_t s) const {
    return sees(t, s) ? form_.scale * product(o_.q + query(t), o_.k + key(s)) : -kInfinity;
  }
  // 0 if the dropout drops the weight; by what it is multiplied if not.
  double kept(std::int64_t t, std::int64_t s) const {
    if (!o_.has_seed) return 1;
    const float u = uniform(dropout_.key(l_), dropout_.sample(l_, sample_),
                            static_cast<std::uint64_t>(dropout_.element(head_, t, s)));
    return dropout_.keeps(u) ? 1 / (1 - form_.dropout) : 0;
  }

 private:
  const AttentionForm& form_;
  const AttentionDropout& dropout_;
  const AttentionSize& size_;
  const AttentionOperands<T>& o_;
  const Launch& l_;
  const std::int64_t sample_, head_;
};

// Adds factor·b to a.
template <class T>
void add(std::vector<double>& a, std::int64_t at, double factor, const T* b, std::int64_t n) {
  for (std::int64_t d = 0; d < n; ++d) a[static_cast<std::size_t>(at + d)] += factor * b[d];
}

template <class T>
void attend(const AttentionSize& size, const Head<T>& head, const T* v, T* y, T* log_sums) {
  std::vector<double> scores(static_cast<std::size_t>(size.keys)),
      sum(static_cast<std::size_t>(size.features));
  for (std::int64_t t = 0; t < size.queries; ++t) {
    double largest = -kInfinity, total = 0;
    for (std::int64_t s = 0; s < size.keys; ++s)
      largest = std::max(largest, scores[static_cast<std::size_t>(s)] = head.score(t, s));
    std::fill(sum.begin(), sum.end(), 0);
    const double shift = largest == -kInfinity ? 0 : largest;
    for (std::int64_t s = 0; s < size.keys; ++s) {
      if (!head.sees(t, s)) continue;
      const double weight = std::exp(scores[static_cast<std::size_t>(s)] - shift);
      total += weight;
      add(sum, 0, weight * head.kept(t, s), v + head.key(s), size.features);
    }
    for (std::size_t d = 0; d < sum.size(); ++d)
      y[head.result(t) + static_cast<std::int64_t>(d)] = static_cast<T>(total == 0 ? 0 : sum[d] / total);
    log_sums[head.log_sum(t)] = static_cast<T>(total == 0 ? -kInfinity : shift + std::log(total));
  }
}

}  // namespace

KernelPtr make_attention_reference(const KernelSpec& spec) {
  const AttentionForm form = static_cast<const AttentionOp&>(spec.op).form;
  const AttentionDropout dropout(spec, form, attention_size(form, spec.inputs));
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    using T = decltype(zero);
    return make_kernel([=](const Launch& l) {
      const AttentionOperands<T> o(form, dropout.size, l);
      for (std::int64_t n = 0; n < dropout.size.samples; ++n)
        for (std::int64_t h = 0; h < dropout.size.heads; ++h)
          attend(dropout.size, Head<T>(form, dropout, o, l, n, h), o.v, output<T>(l, 0), output<T>(l, 1));
    });
  });
}

KernelPtr make_attention_grad_reference(const KernelSpec& spec) {
  const AttentionForm form = static_cast<const AttentionGradOp&>(spec.op).form;
  const AttentionDropout dropout(spec, form, attention_size(form, spec.inputs));
  const int results = static_cast<int>(spec.inputs.size()) - 3;  // the number of the operand y
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    using T = decltype(zero);
    return make_kernel([=](const Launch& l) {
      const AttentionSize& size = dropout.size;
      const AttentionOperands<T> o(form, size, l);
      const AttentionGradients<T> to(form, size, l);
      const T *y = input<T>(l, results), *log_sums = input<T>(l, results + 1), *dy = input<T>(l, results + 2);
      const auto queries = static_cast<std::size_t>(size.samples * size.queries * o.stride),
                 keys = static_cast<std::size_t>(size.samples * size.keys * o.stride);
      std::vector<double> dq(queries), dk(keys), dv(keys);
      for (std::int64_t n = 0; n < size.samples; ++n)
        for (std::int64_t h = 0; h < size.heads; ++h) {
          const Head<T> head(form, dropout, o, l, n, h);
          for (std::int64_t t = 0; t < size.queries; ++t) {
            const double mean = head.product(y + head.result(t), dy + head.result(t));
            for (std::int64_t s = 0; s < size.keys; ++s) {
              if (!head.sees(t, s) || log_sums[head.log_sum(t)] == -kInfinity) continue;
              const double weight = std::exp(head.score(t, s) - log_sums[head.log_sum(t)]),
                           kept = head.kept(t, s),
                           slope = form.scale * weight *
                                   (kept * head.product(dy + head.result(t), o.v + head.key(s)) - mean);
              add(dq, head.query(t), slope, o.k + head.key(s), size.features);
              add(dk, head.key(s), slope, o.q + head.query(t), size.features);
              add(dv, head.key(s), weight * kept, dy + head.result(t), size.features);
            }
          }
        }
      // Of the packed operand, the three parts of a position follow each other.
      const auto copy = [&](const std::vector<double>& from, T* gradient, std::int64_t positions) {
        for (std::int64_t p = 0; p < size.samples * positions; ++p)
          for (std::int64_t c = 0; c < size.width(); ++c)
            gradient[p * o.stride + c] = static_cast<T>(from[static_cast<std::size_t>(p * o.stride + c)]);
      };
      copy(dq, to.q, size.queries);
      copy(dk, to.k, size.keys);
      copy(dv, to.v, size.keys);
    });
  });
}

}  // namespace tandem::engine
