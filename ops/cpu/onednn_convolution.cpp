// Chooses oneDNN's kernel for a convolution, and the number of parts to compute it in.
#include <algorithm>
#include <optional>

#include <tandem/ops/cpu/onednn_plan.h>

namespace tandem::engine::onednn {
namespace {

struct WindowDims {
  memory::dims stride, dilation, padding;
  explicit WindowDims(const Window& w)
      : stride{w.stride.h, w.stride.w},
        dilation{w.dilation.h - 1, w.dilation.w - 1},  // oneDNN counts the gaps
        padding{w.padding.h, w.padding.w} {}
};

// The library's first choice, brgemm, is up to two times slower than its older direct kernels if a matrix has
// few rows (pixels) or little depth (channels): measured with 2.6 and 3.2 on images of at most 4×4, and of
// 3 channels. Grouped and 1×1 convolutions have other kernels.
std::string_view best_direct(const Operand& image, const Operand& weights, const Operand& output) {
  const auto pixels = [](const Operand& o) { return o.extents[2] * o.extents[3]; };
  if (weights.extents.size() != 4 || pixels(weights) == 1) return "";
  const bool few = std::min(pixels(image), pixels(output)) <= 16 || image.extents[1] < 16;
  return few ? "jit:avx512" : "";
}

// Winograd's F(4×4, 3×3) needs 36 multiplications for 16 pixels instead of 144, but it transforms every tile
// of every channel, and reads only blocked images. Measured with 2.6, for at least 32 channels and tiles at
// least two thirds full: up to three times faster than direct kernels, at a relative error of 1e-6 instead of
// 3e-7.
bool winograd_is_faster(const Operand& weights, const Operand& output, const WindowDims& w) {
  if (output.dtype != DType::f32 || weights.extents.size() != 4 || weights.extents[2] != 3 ||
      weights.extents[3] != 3 || w.stride != memory::dims{1, 1} || w.dilation != memory::dims{0, 0})
    return false;
  const std::int64_t height = output.extents[2], width = output.extents[3];
  const std::int64_t tiles = ((height + 3) / 4) * ((width + 3) / 4);
  return std::min(weights.extents[0], weights.extents[1]) >= 32 && 3 * height * width >= 2 * 16 * tiles;
}

// Returns whether a row or column of the kernel lies on padding at all its positions on an image.
bool has_idle_taps(const Window& w, Size2 image) {
  const Size2 positions = w.positions(image);
  const auto idle = [](std::int64_t extent, std::int64_t positions, std::int64_t taps, std::int64_t stride,
                       std::int64_t padding, std::int64_t dilation) {
    for (std::int64_t t = 0; t < taps; ++t) {
      bool used = false;
      for (std::int64_t o = 0; o < positions && !used; ++o) {
        const std::int64_t pixel = o * stride + t * dilation - padding;
        used = pixel >= 0 && pixel < extent;
      }
      if (!used) return true;
    }
    return false;
  };
  return idle(image.h, positions.h, w.kernel.h, w.stride.h, w.padding.h, w.dilation.h) ||
         idle(image.w, positions.w, w.kernel.w, w.stride.w, w.padding.w, w.dilation.w);
}

// A convolution or one of its gradients on a part of the operands.
struct ConvolutionPart {
  Operand image, weights, bias, output;
  bool has_bias;
  std::int64_t image_bytes = 0, weight_bytes = 0, bias_bytes = 0, output_bytes = 0;  // distances of the parts
  int parts = 1;

  const Operand* bias_or_null() const { return has_bias ? &bias : nullptr; }
};

enum class Split { batch, outputs, inputs };

// Returns one of `parts` equal parts, or nothing if the cut is impossible or leaves too few channels per part
// to be fast.
std::optional<ConvolutionPart> split(ConvolutionPart p, Split along, int parts) {
  if (parts == 1) return p;
  p.parts = parts;
  const auto channels = [&](std::int64_t n) { return n % (16 * parts) == 0 && n / parts >= 128; };
  switch (along) {
    case Split::batch:
      if (p.image.extents[0] % parts != 0) return std::nullopt;
      p.image_bytes = take_part(p.image, 0, parts);
      p.output_bytes = take_part(p.output, 0, parts);
      break;
    case Split::outputs:
      if (!channels(p.output.extents[1])) return std::nullopt;
      p.weight_bytes = take_part(p.weights, 0, parts);
      p.output_bytes = take_part(p.output, 1, parts);
      if (p.has_bias) p.bias_bytes = take_part(p.bias, 0, parts);
      break;
    case Split::inputs:
      if (!channels(p.image.extents[1])) return std::nullopt;
      p.weight_bytes = take_part(p.weights, 1, parts);
      p.image_bytes = take_part(p.image, 1, parts);
      break;
  }
  return p;
}

// Winograd's transforms and repacked images can need more memory than everything else. A convolution is cut
// into parts until its workspace has at most this many bytes, and at most twice the bytes of its operands.
// Kernels are slow on more, smaller parts.
constexpr std::int64_t kScratchTarget = 24 << 20;
constexpr int kMostParts = 4;

// `make(part, algorithm, implementation, any)` returns a plan, or nothing if the library has no such kernel.
// Images and outputs have their layout in memory; if `any`, the library chooses. `along` lists the ways to
// cut the work, the best first. `pieces` is the number of pieces of a direct kernel's result.
template <class Make>
PrimitivePtr make_convolution(const ConvolutionPart& whole, const WindowDims& w,
                              std::initializer_list<Split> along, int pieces, const Team& team,
                              const Make& make) {
  const std::int64_t most = 2 * (bytes_of(whole.image) + bytes_of(whole.weights) + bytes_of(whole.output));
  std::optional<Primitive::Plan> best;
  const auto enough = [&] { return best && best->workspace <= std::min(kScratchTarget, most); };
  if (winograd_is_faster(whole.weights, whole.output, w))
    for (const Split direction : along)
      for (int parts = 1; parts <= kMostParts && !enough(); parts *= 2) {
        const auto part = split(whole, direction, parts);
        if (!part) break;
        auto plan = make(*part, dnnl::algorithm::convolution_winograd, "", true);
        if (plan && (!best || plan->workspace < best->workspace)) best = std::move(plan);
      }
  if (!best || best->workspace > most)
    best = make(*split(whole, Split::batch, pieces), dnnl::algorithm::convolution_direct,
                best_direct(whole.image, whole.weights, whole.output), false);
  return best ? finish(std::move(*best), team) : nullptr;
}

dnnl::convolution_forward::primitive_desc find_forward(const ConvolutionPart& p, const WindowDims& w,
                                                       dnnl::algorithm algorithm, std::string_view wanted,
                                                       bool any) {
  return find_implementation<dnnl::convolution_forward>(
      wanted, attributes(),
      std::tuple(dnnl::prop_kind::forward_training, algorithm, request(p.image, any), request(p.weights),
                 request(p.bias_or_null()), request(p.output, any), w.stride, w.dilation, w.padding,
                 w.padding));
}

}  // namespace

PrimitivePtr convolution(const Operand& image, const Operand& weights, const Operand* bias,
                         const Operand& output, const Window& window, Team team) {
  return prepare({&image, &weights, bias, &output}, team, [&] {
    const WindowDims w(window);
    const ConvolutionPart whole{image, weights, bias ? *bias : Operand(), output, bias != nullptr};
    const auto make = [&](const ConvolutionPart& p, dnnl::algorithm algorithm, std::string_view wanted,
                          bool any) -> std::optional<Primitive::Plan> {
      const auto pd = find_forward(p, w, algorithm, wanted, any);
      if (!pd) return std::nullopt;
      return make_plan(pd,
                       {{DNNL_ARG_SRC, &p.image, pd.src_desc(), false, p.image_bytes},
                        {DNNL_ARG_WEIGHTS, &p.weights, pd.weights_desc(), false, p.weight_bytes},
                        {DNNL_ARG_BIAS, p.bias_or_null(), pd.bias_desc(), false, p.bias_bytes},
                        {DNNL_ARG_DST, &p.output, pd.dst_desc(), true, p.output_bytes}},
                       p.parts);
    };
    return make_convolution(whole, w, {Split::outputs, Split::batch}, pieces_of(output), team, make);
  });
}

PrimitivePtr convolution_grad_input(const Operand& grad_output, const Operand& weights,
                                    const Operand& grad_image, const Window& window, Team team) {
  return prepare({&grad_output, &weights, &grad_image}, team, [&] {
    const WindowDims w(window);
    const ConvolutionPart whole{grad_image, weights, {}, grad_output, false};
    const auto make = [&](const ConvolutionPart& p, dnnl::algorithm algorithm, std::string_view wanted,
                          bool any) -> std::optional<Primitive::Plan> {
      const auto forward = find_forward(p, w, algorithm, wanted, any);
      if (!forward) return std::nullopt;
      const auto pd = find_implementation<dnnl::convolution_backward_data>(
          wanted, attributes(),
          std::tuple(algorithm, request(p.image, any), request(p.weights), request(p.output, any), w.stride,
                     w.dilation, w.padding, w.padding),
          forward);
      if (!pd) return std::nullopt;
      return make_plan(pd,
                       {{DNNL_ARG_DIFF_DST, &p.output, pd.diff_dst_desc(), false, p.output_bytes},
                        {DNNL_ARG_WEIGHTS, &p.weights, pd.weights_desc(), false, p.weight_bytes},
                        {DNNL_ARG_DIFF_SRC, &p.image, pd.diff_src_desc(), true, p.image_bytes}},
                       p.parts);
    };
    return make_convolution(whole, w, {Split::inputs, Split::batch}, pieces_of(grad_image), team, make);
  });
}

PrimitivePtr convolution_grad_weight(const Operand& image, const Operand& grad_output,
                                     const Operand& grad_weights, const Operand* grad_bias,
                                     const Window& window, Team team) {
  // The library's bf16 kernels (2.6) leave the gradients of such taps undefined; they are 0. With groups and
  // dilation, which they fill up to whole vectors of channels, they read memory that nothing wrote.
  const bool undefined = has_idle_taps(window, {image.extents[2], image.extents[3]}) ||
                         (grad_weights.extents.size() == 5 && window.dilation != Size2(1));
  if (image.dtype == DType::bf16 && undefined) return nullptr;
  return prepare({&image, &grad_output, &grad_weights, grad_bias}, team, [&] {
    const WindowDims w(window);
    const ConvolutionPart whole{image, grad_weights, grad_bias ? *grad_bias : Operand(), grad_output,
                                grad_bias != nullptr};
    const auto make = [&](const ConvolutionPart& p, dnnl::algorithm algorithm, std::string_view wanted,
                          bool any) -> std::optional<Primitive::Plan> {
      ConvolutionPart narrow =
          p;  // forward has no f32 weights beside bf16 images; their gradients can be f32
      narrow.weights.dtype = narrow.bias.dtype = p.image.dtype;
      const auto forward = find_forward(narrow, w, algorithm, wanted, any);
      if (!forward) return std::nullopt;
      const auto pd = find_implementation<dnnl::convolution_backward_weights>(
          wanted, attributes(),
          std::tuple(algorithm, request(p.image, any), request(p.weights), request(p.bias_or_null()),
                     request(p.output, any), w.stride, w.dilation, w.padding, w.padding),
          forward);
      if (!pd) return std::nullopt;
      return make_plan(pd,
                       {{DNNL_ARG_SRC, &p.image, pd.src_desc(), false, p.image_bytes},
                        {DNNL_ARG_DIFF_DST, &p.output, pd.diff_dst_desc(), false, p.output_bytes},
                        {DNNL_ARG_DIFF_WEIGHTS, &p.weights, pd.diff_weights_desc(), true, p.weight_bytes},
                        {DNNL_ARG_DIFF_BIAS, p.bias_or_null(), pd.diff_bias_desc(), true, p.bias_bytes}},
                       p.parts);
    };
    return make_convolution(whole, w, {Split::outputs, Split::batch}, 1, team, make);
  });
}

}  // namespace tandem::engine::onednn
