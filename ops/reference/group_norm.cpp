// Group norm as plain loops on one thread, in double.
#include <cmath>

#include <tandem/ops/group_norm.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

// Calls f(element of x, channel) for all elements of a sample's group.
template <class F>
void for_each_element(const GroupNormSize& s, std::int64_t sample, std::int64_t group, const F& f) {
  for (std::int64_t p = 0; p < s.pixels; ++p)
    for (std::int64_t c = group * s.width(); c < (group + 1) * s.width(); ++c)
      f((sample * s.pixels + p) * s.channels + c, c);
}

template <class T> void group_norm(const GroupNormSize& s, double epsilon, bool centered, const Launch& l) {
  const auto in = [&](int i, std::int64_t at) { return static_cast<double>(input<T>(l, i)[at]); };
  const auto out = [&](int i) { return output<T>(l, i); };
  for (std::int64_t n = 0; n < s.samples; ++n)
    for (std::int64_t g = 0; g < s.groups; ++g) {
      double mean = 0, squares = 0;
      if (centered) for_each_element(s, n, g, [&](std::int64_t i, std::int64_t) { mean += in(0, i); });
      mean /= s.group();
      for_each_element(
          s, n, g, [&](std::int64_t i, std::int64_t) { squares += (in(0, i) - mean) * (in(0, i) - mean); });
      const double inv_std = 1 / std::sqrt(squares / s.group() + epsilon);
      out(1)[n * s.groups + g] = static_cast<T>(inv_std);
      if (centered) out(2)[n * s.groups + g] = static_cast<T>(mean);
      for_each_element(s, n, g, [&](std::int64_t i, std::int64_t c) {
        out(0)[i] = static_cast<T>((in(0, i) - mean) * inv_std * in(1, c) + (centered ? in(2, c) : 0));
      });
    }
}

// With x̂ = (x − mean)·inv_std, h = dy·gamma and averages over the group:
//   dx = inv_std·(h − average of h − x̂·average of h·x̂),  dgamma = Σ dy·x̂,  dbeta = Σ dy.
// If not centered, dx lacks the term "average of h". The workspace holds sums (2,channels) in double.
template <class T> void group_norm_grad(const GroupNormSize& s, bool centered, const Launch& l) {
  const auto in = [&](int i, std::int64_t at) { return static_cast<double>(input<T>(l, i)[at]); };
  const auto out = [&](int i) { return output<T>(l, i); };
  auto* sums = static_cast<double*>(l.workspace);
  double *dgamma = sums, *dbeta = sums + s.channels;
  std::fill_n(sums, 2 * s.channels, 0.0);
  for (std::int64_t n = 0; n < s.samples; ++n)
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const double inv_std = in(3, n * s.groups + g), mean = centered ? in(4, n * s.groups + g) : 0;
      const auto normal = [&](std::int64_t i) { return (in(0, i) - mean) * inv_std; };
      double sum = 0, product = 0;
      for (std::int64_t c = g * s.width(); c < (g + 1) * s.width(); ++c) {
        double by_beta = 0, by_gamma = 0;
        for (std::int64_t p = 0; p < s.pixels; ++p) {
          const std::int64_t i = (n * s.pixels + p) * s.channels + c;
          by_beta += in(2, i);
          by_gamma += in(2, i) * normal(i);
        }
        if (centered) sum += in(1, c) * by_beta;
        product += in(1, c) * by_gamma;
        dgamma[c] += by_gamma;
        dbeta[c] += by_beta;
      }
      for_each_element(s, n, g, [&](std::int64_t i, std::int64_t c) {
        const double h = in(2, i) * in(1, c);
        out(0)[i] = static_cast<T>(inv_std * (h - sum / s.group() - normal(i) * product / s.group()));
      });
    }
  std::copy_n(dgamma, s.channels, out(1));
  if (centered) std::copy_n(dbeta, s.channels, out(2));
}

}  // namespace

KernelPtr make_group_norm_reference(const KernelSpec& spec) {
  const auto& op = static_cast<const GroupNormOp&>(spec.op);
  return make_for<float, double>(spec.inputs[0].dtype, [&](auto zero) {
    return make_kernel(
        [s = GroupNormSize(spec.inputs[0], op.groups), epsilon = op.epsilon,
         centered = op.centered](const Launch& l) { group_norm<decltype(zero)>(s, epsilon, centered, l); });
  });
}

KernelPtr make_group_norm_grad_reference(const KernelSpec& spec) {
  const auto& op = static_cast<const GroupNormGradOp&>(spec.op);
  return make_for<float, double>(spec.inputs[0].dtype, [&](auto zero) {
    const GroupNormSize s(spec.inputs[0], op.groups);
    return make_kernel(
        [s, centered = op.centered](const Launch& l) { group_norm_grad<decltype(zero)>(s, centered, l); },
        2 * s.channels * static_cast<std::int64_t>(sizeof(double)));
  });
}

}  // namespace tandem::engine
