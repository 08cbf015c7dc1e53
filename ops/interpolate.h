#pragma once
#include <cstdint>
#include <vector>

#include <tandem/ops/apply.h>
#include <tandem/ops/window.h>

namespace tandem {

enum class Interpolation : std::uint8_t { nearest, bilinear };

struct InterpolateOptions {
  Size2 size = 0;  ///< height and width of the result
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;  ///< bilinear: the corner pixels' centers, not the images' edges, coincide
};

/// Resizes images (N,H,W,C) -> (N,size.h,size.w,C), as PyTorch does. Pixel o of the result lies at (o +
/// ½)·H/H′ − ½ in the image, or at o·(H − 1)/(H′ − 1) with `align_corners`. `nearest` takes pixel ⌊o·H/H′⌋;
/// `bilinear` weights the four pixels around the place. Throws Error if a size is below 1.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace tandem

namespace tandem::engine {

/// Weights of the pixels of one axis that make up a pixel of the result.
struct Taps {
  struct Tap {
    std::int64_t pixel;
    double weight;
  };
  std::vector<std::vector<Tap>> of;  // by pixel of the result
};

/// x (N,H,W,C) -> (N,H′,W′,C), linear in x: interpolates images of size `from` to size `to`, or is the
/// adjoint of that, which is its derivative.
class InterpolateOp final : public Op {
 public:
  InterpolateOp(Size2 from, Size2 to, Interpolation mode, bool align_corners, bool adjoint);
  std::string_view name() const override { return "interpolate"; }
  std::string attributes() const override;
  Precision precision() const override { return Precision::follows; }
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override { return map_over_models(*this, args); }
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  Taps rows() const { return taps(from.h, to.h); }
  Taps columns() const { return taps(from.w, to.w); }

  const Size2 from, to;
  const Interpolation mode;
  const bool align_corners, adjoint;

 private:
  Taps taps(std::int64_t from, std::int64_t to) const;
};

}  // namespace tandem::engine
