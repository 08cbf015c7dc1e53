#include <tandem/ops/interpolate.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem {
using namespace engine;

InterpolateOp::InterpolateOp(Size2 from, Size2 to, Interpolation mode, bool align_corners, bool adjoint)
    : from(from), to(to), mode(mode), align_corners(align_corners), adjoint(adjoint) {
  if (std::min({from.h, from.w, to.h, to.w}) < 1)
    throw Error(fmt::format("interpolate: from {} × {} to {} × {}: give sizes of 1 or more", from.h, from.w,
                            to.h, to.w));
}

std::string InterpolateOp::attributes() const {
  return fmt::format("from={}x{} to={}x{} mode={} align_corners={} adjoint={}", from.h, from.w, to.h, to.w,
                     mode == Interpolation::nearest ? "nearest" : "bilinear", int{align_corners},
                     int{adjoint});
}

Types InterpolateOp::infer(TypesView inputs) const {
  const TensorType& x = only_input(inputs);
  const Size2 in = adjoint ? to : from, out = adjoint ? from : to;
  if (!is_floating(x.dtype) || x.rank() != 4 || x.shape[1] != in.h || x.shape[2] != in.w)
    throw Error(fmt::format("{} must be floating images (N,{},{},C)", to_string(x), in.h, in.w));
  return {{x.dtype, {x.shape[0], out.h, out.w, x.shape[3]}}};
}

Tensors InterpolateOp::vjp(const VjpArgs& args) const {
  return {
      apply_op1(std::make_shared<InterpolateOp>(from, to, mode, align_corners, !adjoint), {args.grads[0]})};
}

Work InterpolateOp::cost(TypesView inputs, TypesView outputs) const {
  const double larger = static_cast<double>(std::max(inputs[0].elements(), outputs[0].elements()));
  Work work = streaming_work(inputs, outputs, 0);
  work.flops = larger * (mode == Interpolation::nearest ? 1 : 8);
  return work;
}

Taps InterpolateOp::taps(std::int64_t n, std::int64_t m) const {
  Taps taps;
  taps.of.resize(static_cast<std::size_t>(adjoint ? n : m));
  const auto add = [&](std::int64_t o, std::int64_t i, double weight) {
    if (weight != 0) taps.of[static_cast<std::size_t>(adjoint ? i : o)].push_back({adjoint ? o : i, weight});
  };
  const double scale = align_corners ? (m > 1 ? static_cast<double>(n - 1) / static_cast<double>(m - 1) : 0)
                                     : static_cast<double>(n) / static_cast<double>(m);
  for (std::int64_t o = 0; o < m; ++o) {
    if (mode == Interpolation::nearest) {
      add(o, std::min(o * n / m, n - 1), 1);
      continue;
    }
    const double place = static_cast<double>(o);
    const double at = align_corners ? place * scale : std::max((place + 0.5) * scale - 0.5, 0.0);
    const auto left = std::min(static_cast<std::int64_t>(at), n - 1);
    const double part = at - static_cast<double>(left);
    add(o, left, left + 1 < n ? 1 - part : 1);
    if (left + 1 < n) add(o, left + 1, part);
  }
  return taps;
}

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  if (x.type().rank() != 4)
    throw Error(fmt::format("interpolate: {} must be images (N,H,W,C)", to_string(x.type())));
  if (options.align_corners && options.mode == Interpolation::nearest)
    throw Error("interpolate: align_corners is an option of bilinear interpolation, not of nearest");
  return apply_op1(std::make_shared<InterpolateOp>(Size2(x.size(1), x.size(2)), options.size, options.mode,
                                                   options.align_corners, false),
                   {x});
}

}  // namespace tandem
