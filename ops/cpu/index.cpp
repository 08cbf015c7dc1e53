// Gathers and scatters by a team. To copy, each thread takes a part of the indices. To add, each thread takes
// a part of the result, so that every sum runs in the order of the indices.
#include <tandem/ops/index.h>

#include <algorithm>
#include <cstring>

#include <tandem/ops/axis_split.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/sum_rows.h>
#include <tandem/ops/index_check.h>

namespace tandem::engine {
namespace {

// Begins sums, elements begin … end−1: with the third operand, which can be the result, or with zeros.
void begin_sums(const Launch& l, bool has_onto, std::int64_t begin, std::int64_t end) {
  auto* y = output<float>(l, 0);
  if (!has_onto)
    std::fill(y + begin, y + end, 0.0f);
  else if (l.in[2] != y)
    std::copy(input<float>(l, 2) + begin, input<float>(l, 2) + end, y + begin);
}

template <class E> KernelPtr make_gather(const KernelSpec& spec) {
  const int axis = static_cast<const GatherOp&>(spec.op).axis;
  const AxisSplit from(spec.inputs[0].shape, axis), to(spec.outputs[0].shape, axis);
  const int threads = useful_threads(spec.threads, 2 * spec.outputs[0].bytes() + spec.inputs[1].bytes());
  return make_kernel([=, check = IndexCheck(spec.inputs[1].shape, from.extent)](const Launch& l) {
    const auto* index = input<std::int32_t>(l, 1);
    check(index);
    const auto* x = input<E>(l, 0);
    auto* y = output<E>(l, 0);
    parallel_parts(threads, to.outer * to.extent, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {  // one outer index at a time
        const std::int64_t outer = begin / to.extent, stop = std::min(end, (outer + 1) * to.extent);
        const E* source = x + outer * from.extent * from.inner;
        if (to.inner == 1)
          for (std::int64_t at = begin; at < stop; ++at) y[at] = source[index[at]];
        else
          for (std::int64_t at = begin * to.inner; at < stop * to.inner;)
            for (std::int64_t i = 0; i < to.inner; ++i, ++at) y[at] = source[index[at] * from.inner + i];
        begin = stop;
      }
    });
  });
}

// y[index[j,i],i] += x[j,i] in the order of j, for the columns i in `columns`. If not `all`, skips an index
// outside `rows`.
struct Part {
  std::int64_t begin, end;
};
template <bool all>
void add_at(const AxisSplit& from, const float* x, const std::int32_t* index, float* y, Part columns,
            Part rows = {}) {
  for (std::int64_t j = 0; j < from.extent; ++j)
    for (std::int64_t i = columns.begin, at = j * from.inner + i; i < columns.end; ++i, ++at)
      if (all || (index[at] >= rows.begin && index[at] < rows.end)) y[index[at] * from.inner + i] += x[at];
}

constexpr std::int64_t kManyColumns = 64;

// Threads share the outer indices. If these are fewer than the threads, they share the columns; if the
// columns are few too, they share the rows of the result, and each thread reads all indices.
KernelPtr make_scatter(const AxisSplit& from, const AxisSplit& to, const IndexCheck& check, bool has_onto,
                       int threads) {
  return make_kernel([=](const Launch& l) {
    const auto* x = input<float>(l, 0);
    const auto* index = input<std::int32_t>(l, 1);
    auto* y = output<float>(l, 0);
    const std::int64_t source = from.extent * from.inner, target = to.extent * to.inner;
    check(index);
    if (to.outer >= threads)
      return parallel_parts(threads, to.outer, [&](std::int64_t begin, std::int64_t end) {
        begin_sums(l, has_onto, begin * target, end * target);
        for (std::int64_t o = begin; o < end; ++o)
          add_at<true>(from, x + o * source, index + o * source, y + o * target, {0, from.inner});
      });
    const bool by_columns = from.inner >= kManyColumns;
    begin_sums(l, has_onto, 0, to.outer * target);
    parallel_parts(threads, by_columns ? from.inner : to.extent, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = 0; o < to.outer; ++o) {
        const auto add = by_columns ? add_at<true> : add_at<false>;
        add(from, x + o * source, index + o * source, y + o * target,
            by_columns ? Part{begin, end} : Part{0, from.inner}, {begin, end});
      }
    });
  });
}

}  // namespace

KernelPtr make_gather_cpu(const KernelSpec& spec) {
  return make_for_size(spec.outputs[0].dtype, [&](auto zero) { return make_gather<decltype(zero)>(spec); });
}

KernelPtr make_scatter_add_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const int axis = static_cast<const ScatterAddOp&>(spec.op).axis;
  const AxisSplit to(spec.outputs[0].shape, axis);
  return make_scatter(AxisSplit(spec.inputs[0].shape, axis), to, {spec.inputs[1].shape, to.extent},
                      spec.inputs.size() == 3,
                      useful_threads(spec.threads, 2 * spec.inputs[0].bytes() + spec.outputs[0].bytes()));
}

KernelPtr make_one_hot_cpu(const KernelSpec& spec) {
  const std::int64_t count = spec.inputs[0].elements(), classes = spec.outputs[0].shape.back();
  const int threads = useful_threads(spec.threads, spec.outputs[0].bytes());
  return visit_dtype(spec.outputs[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return make_kernel([=, check = IndexCheck(spec.inputs[0].shape, classes)](const Launch& l) {
      const auto* ids = input<std::int32_t>(l, 0);
      check(ids);
      auto* y = output<T>(l, 0);
      parallel_parts(threads, count, [&](std::int64_t begin, std::int64_t end) {
        std::memset(static_cast<void*>(y + begin * classes), 0,
                    static_cast<std::size_t>((end - begin) * classes) * sizeof(T));
        for (std::int64_t i = begin; i < end; ++i) y[i * classes + ids[i]] = convert_element<T>(1.0f);
      });
    });
  });
}

KernelPtr make_embedding_cpu(const KernelSpec& spec) {
  const std::int64_t count = spec.inputs[1].elements(), rows = spec.inputs[0].shape[0],
                     row = rows > 0 ? spec.inputs[0].bytes() / rows : 0;
  const int threads = useful_threads(spec.threads, 2 * spec.outputs[0].bytes());
  return make_kernel([=, check = IndexCheck(spec.inputs[1].shape, rows)](const Launch& l) {
    const auto* ids = input<std::int32_t>(l, 1);
    check(ids);
    parallel_parts(threads, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        std::memcpy(output<std::byte>(l, 0) + i * row, input<std::byte>(l, 0) + ids[i] * row,
                    static_cast<std::size_t>(row));
    });
  });
}

KernelPtr make_embedding_grad_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  const std::int64_t count = spec.inputs[1].elements(), rows = spec.outputs[0].shape[0],
                     row = rows > 0 ? spec.outputs[0].elements() / rows : 0;
  const bool has_onto = spec.inputs.size() == 3;
  const int threads = useful_threads(spec.threads, spec.inputs[0].bytes() + spec.outputs[0].bytes());
  return make_kernel([=, check = IndexCheck(spec.inputs[1].shape, rows)](const Launch& l) {
    const auto* ids = input<std::int32_t>(l, 1);
    check(ids);
    const auto* x = input<float>(l, 0);
    auto* y = output<float>(l, 0);
    parallel_parts(threads, rows, [&](std::int64_t begin, std::int64_t end) {
      begin_sums(l, has_onto, begin * row, end * row);
      for (std::int64_t i = 0; i < count; ++i)
        if (ids[i] >= begin && ids[i] < end) add_row(x + i * row, row, y + ids[i] * row);
    });
  });
}

}  // namespace tandem::engine
