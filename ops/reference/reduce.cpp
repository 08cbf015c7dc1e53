#include <tandem/ops/reduce.h>

#include <algorithm>

#include <tandem/ops/axis_split.h>
#include <tandem/ops/broadcast.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

// A dense array split into the reduced axes (`inner`) and the other axes (`outer`).
struct Groups {
  Loops outer, inner;

  Groups(const Shape& shape, const std::vector<int>& axes) {
    Loops kept{{}, {{}}}, gone{{}, {{}}};
    const Strides dense = dense_strides(shape);
    for (std::size_t a = 0; a < shape.size(); ++a) {
      Loops& loops = std::find(axes.begin(), axes.end(), static_cast<int>(a)) != axes.end() ? gone : kept;
      loops.extents.push_back(shape[a]);
      loops.strides[0].push_back(dense[a]);
    }
    outer = collapse(kept);
    inner = collapse(gone);
  }
  std::int64_t count() const { return element_count(outer.extents); }
  std::int64_t size() const { return element_count(inner.extents); }
  /// Returns the offset of element `i` of group `g`.
  std::int64_t at(std::int64_t g, std::int64_t i) const {
    return position(outer.extents, outer.strides[0], g) + position(inner.extents, inner.strides[0], i);
  }
};

bool is_extreme(Reduction kind) { return kind == Reduction::max || kind == Reduction::min; }

// Returns whether `x` replaces `best`, the extreme found so far. A NaN replaces everything except a NaN.
template <class T> bool displaces(Reduction kind, T x, T best) {
  return (kind == Reduction::max ? x > best : x < best) || (x != x && best == best);
}

// Converts for an exact comparison: integers stay as they are, all other types become double.
template <class T> auto comparable(T x) {
  if constexpr (std::is_integral_v<T>)
    return x;
  else
    return static_cast<double>(x);
}

// Sums floats in double, so that the error of this reference is negligible in tests.
template <class In, class Out> void reduce(Reduction kind, const Groups& groups, const In* x, Out* y) {
  using Sum = std::conditional_t<std::is_integral_v<Out>, std::int64_t, double>;
  const std::int64_t n = groups.size();
  for (std::int64_t g = 0; g < groups.count(); ++g) {
    Sum sum = is_extreme(kind) ? static_cast<Sum>(x[groups.at(g, 0)]) : Sum{0};
    for (std::int64_t i = 0; i < n; ++i) {
      const Sum value = static_cast<Sum>(x[groups.at(g, i)]);
      if (!is_extreme(kind))
        sum += value;
      else if (displaces(kind, value, sum))
        sum = value;
    }
    if constexpr (!std::is_integral_v<Sum>)
      if (kind == Reduction::mean) sum /= static_cast<Sum>(n);
    y[g] = convert_element<Out>(sum);
  }
}

}  // namespace

KernelPtr make_reduce_reference(const KernelSpec& spec) {
  const auto& op = static_cast<const ReduceOp&>(spec.op);
  return make_kernel([groups = Groups(spec.inputs[0].shape, op.axes), kind = op.kind,
                      in = spec.inputs[0].dtype, out = spec.outputs[0].dtype](const Launch& l) {
    visit_dtype(in, [&](auto x) {
      visit_dtype(out,
                  [&](auto y) { reduce(kind, groups, input<decltype(x)>(l, 0), output<decltype(y)>(l, 0)); });
    });
  });
}

KernelPtr make_first_extreme_reference(const KernelSpec& spec) {
  const auto& op = static_cast<const FirstExtremeOp&>(spec.op);
  return make_kernel([groups = Groups(spec.inputs[0].shape, op.axes), kind = op.kind,
                      dtype = spec.inputs[0].dtype](const Launch& l) {
    visit_dtype(dtype, [&](auto zero) {
      const auto* x = input<decltype(zero)>(l, 0);
      auto* mask = output<std::uint8_t>(l, 0);
      for (std::int64_t g = 0; g < groups.count(); ++g) {
        std::int64_t best = groups.at(g, 0);
        for (std::int64_t i = 0; i < groups.size(); ++i) {
          const std::int64_t p = groups.at(g, i);
          if (displaces(kind, comparable(x[p]), comparable(x[best]))) best = p;
          mask[p] = 0;
        }
        mask[best] = 1;
      }
    });
  });
}

KernelPtr make_arg_extreme_reference(const KernelSpec& spec) {
  const auto& op = static_cast<const ArgExtremeOp&>(spec.op);
  return make_kernel([s = AxisSplit(spec.inputs[0].shape, op.axis), kind = op.kind,
                      dtype = spec.inputs[0].dtype](const Launch& l) {
    visit_dtype(dtype, [&](auto zero) {
      auto* y = output<std::int32_t>(l, 0);
      for (std::int64_t o = 0; o < s.outer; ++o)
        for (std::int64_t i = 0; i < s.inner; ++i) {
          const auto* x = input<decltype(zero)>(l, 0) + o * s.extent * s.inner + i;
          std::int64_t best = 0;
          for (std::int64_t k = 1; k < s.extent; ++k)
            if (displaces(kind, comparable(x[k * s.inner]), comparable(x[best * s.inner]))) best = k;
          y[o * s.inner + i] = static_cast<std::int32_t>(best);
        }
    });
  });
}

}  // namespace tandem::engine
