#include <tandem/ops/index.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/axis_split.h>
#include <tandem/ops/index_check.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

const std::int32_t* indices_of(const Launch& l) { return input<std::int32_t>(l, 1); }

// Begins a sum over `n` elements: with the third operand, which can be the result, or with zeros.
template <class T> T* begin_sum(const Launch& l, bool has_onto, std::int64_t n) {
  T* y = output<T>(l, 0);
  if (!has_onto)
    std::fill_n(y, n, T{});
  else if (l.in[2] != y)
    std::copy_n(input<T>(l, 2), n, y);
  return y;
}

template <class F> KernelPtr for_summable(DType dtype, const F& make) {
  return make_for<float, double, std::int32_t, std::int64_t>(dtype, make);
}

}  // namespace

KernelPtr make_gather_reference(const KernelSpec& spec) {
  const int axis = static_cast<const GatherOp&>(spec.op).axis;
  const AxisSplit from(spec.inputs[0].shape, axis), to(spec.outputs[0].shape, axis);
  const IndexCheck check(spec.inputs[1].shape, from.extent);
  return make_kernel([from, to, check, size = size_of(spec.inputs[0].dtype)](const Launch& l) {
    const std::int32_t* index = indices_of(l);
    check(index);
    const auto* x = input<std::byte>(l, 0);
    auto* y = output<std::byte>(l, 0);
    for (std::int64_t o = 0; o < to.outer; ++o)
      for (std::int64_t j = 0; j < to.extent; ++j)
        for (std::int64_t i = 0; i < to.inner; ++i) {
          const std::int64_t at = (o * to.extent + j) * to.inner + i;
          std::memcpy(y + at * size, x + ((o * from.extent + index[at]) * from.inner + i) * size,
                      static_cast<std::size_t>(size));
        }
  });
}

KernelPtr make_scatter_add_reference(const KernelSpec& spec) {
  const int axis = static_cast<const ScatterAddOp&>(spec.op).axis;
  const AxisSplit from(spec.inputs[0].shape, axis), to(spec.outputs[0].shape, axis);
  return for_summable(spec.inputs[0].dtype, [&](auto zero) {
    const IndexCheck check(spec.inputs[1].shape, to.extent);
    return make_kernel([from, to, check, has_onto = spec.inputs.size() == 3](const Launch& l) {
      const std::int32_t* index = indices_of(l);
      check(index);
      const auto* x = input<decltype(zero)>(l, 0);
      auto* y = begin_sum<decltype(zero)>(l, has_onto, to.outer * to.extent * to.inner);
      for (std::int64_t o = 0; o < from.outer; ++o)
        for (std::int64_t j = 0; j < from.extent; ++j)
          for (std::int64_t i = 0; i < from.inner; ++i) {
            const std::int64_t at = (o * from.extent + j) * from.inner + i;
            y[(o * to.extent + index[at]) * to.inner + i] += x[at];
          }
    });
  });
}

KernelPtr make_embedding_reference(const KernelSpec& spec) {
  const std::int64_t count = spec.inputs[1].elements(), rows = spec.inputs[0].shape[0],
                     row = rows > 0 ? spec.inputs[0].bytes() / rows : 0;
  return make_kernel([=, check = IndexCheck(spec.inputs[1].shape, rows)](const Launch& l) {
    check(indices_of(l));
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(output<std::byte>(l, 0) + i * row, input<std::byte>(l, 0) + indices_of(l)[i] * row,
                  static_cast<std::size_t>(row));
  });
}

KernelPtr make_embedding_grad_reference(const KernelSpec& spec) {
  const std::int64_t count = spec.inputs[1].elements(), rows = spec.outputs[0].shape[0],
                     row = rows > 0 ? spec.outputs[0].elements() / rows : 0;
  const bool has_onto = spec.inputs.size() == 3;
  return for_summable(spec.inputs[0].dtype, [&](auto zero) {
    return make_kernel([=, check = IndexCheck(spec.inputs[1].shape, rows)](const Launch& l) {
      check(indices_of(l));
      const auto* x = input<decltype(zero)>(l, 0);
      auto* y = begin_sum<decltype(zero)>(l, has_onto, rows * row);
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t e = 0; e < row; ++e) y[indices_of(l)[i] * row + e] += x[i * row + e];
    });
  });
}

KernelPtr make_one_hot_reference(const KernelSpec& spec) {
  const std::int64_t count = spec.inputs[0].elements(), classes = spec.outputs[0].shape.back();
  const IndexCheck check(spec.inputs[0].shape, classes);
  return make_kernel([=, dtype = spec.outputs[0].dtype](const Launch& l) {
    const auto* ids = input<std::int32_t>(l, 0);
    check(ids);
    visit_dtype(dtype, [&](auto zero) {
      using T = decltype(zero);
      auto* y = output<T>(l, 0);
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t c = 0; c < classes; ++c)
          y[i * classes + c] = convert_element<T>(c == ids[i] ? 1.0f : 0.0f);
    });
  });
}

KernelPtr make_index32_reference(const KernelSpec& spec) {
  return make_for<std::int64_t, std::uint8_t, std::int32_t>(spec.inputs[0].dtype, [&](auto zero) {
    return make_kernel([shape = spec.inputs[0].shape](const Launch& l) {
      const auto* from = input<decltype(zero)>(l, 0);
      auto* to = output<std::int32_t>(l, 0);
      for (std::int64_t i = 0; i < element_count(shape); ++i) {
        if (!std::in_range<std::int32_t>(from[i]))
          throw Error(fmt::format("index {}{} is beyond all ranges", from[i], place_in(shape, i)));
        to[i] = static_cast<std::int32_t>(from[i]);
      }
    });
  });
}

}  // namespace tandem::engine
