// Convolutions of channels-last images. Tiny images use matrix products (conv_dense.h, and in bf16
// conv_unfolded.h), and so do gradients of 1×1 convolutions (below). Some gradients of weights are computed
// by one primitive per thread (conv_grad_weight.h). Others use oneDNN's convolutions, whose implementation is
// chosen in onednn_convolution.cpp. None of these is fast with weights (O,H,W,I), so weights are repacked in
// the workspace, which takes about 1 % of a layer's time.
#include <tandem/ops/conv.h>

#include <array>

#include <tandem/ops/cpu/conv_dense.h>
#include <tandem/ops/cpu/conv_grad_weight.h>
#include <tandem/ops/cpu/conv_patches.h>
#include <tandem/ops/cpu/conv_unfolded.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/cpu/parallel.h>

namespace tandem::engine {
namespace {

onednn::Operand image(DType dtype, std::int64_t n, Size2 size, std::int64_t channels) {
  return {dtype, {n, channels, size.h, size.w}, {size.h * size.w * channels, 1, size.w * channels, channels}};
}

onednn::Operand weights(DType dtype, const Conv2dSize& s) {
  const Size2 kernel = s.window.kernel;
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups, filter = kernel.h * kernel.w * in;
  onednn::Operand operand{dtype, {out, in, kernel.h, kernel.w}, {filter, 1, kernel.w * in, in}, true};
  if (s.groups > 1) {
    operand.extents.insert(operand.extents.begin(), s.groups);
    operand.strides.insert(operand.strides.begin(), out * filter);
  }
  return operand;
}

onednn::Operand vector(DType dtype, std::int64_t n) { return {dtype, {n}, {1}}; }

// The kernel's inputs, then its outputs, are the primitive's operands in order.
class ConvKernel final : public Kernel {
 public:
  ConvKernel(onednn::PrimitivePtr primitive, std::size_t inputs, std::size_t outputs)
      : primitive_(std::move(primitive)), inputs_(inputs), outputs_(outputs) {}
  std::int64_t workspace() const override { return primitive_->workspace(); }
  void run(const Launch& l) const override {
    const auto operands = addresses(l);
    primitive_->require_success(primitive_->run({operands.data(), inputs_ + outputs_}, l.workspace));
  }
  int pieces() const override { return primitive_->pieces(); }
  void run_piece(const Launch& l, int piece) const override {
    const auto operands = addresses(l);
    primitive_->require_success(
        primitive_->run_piece({operands.data(), inputs_ + outputs_}, l.workspace, piece));
  }

 private:
  std::array<void*, 4> addresses(const Launch& l) const {
    std::array<void*, 4> operands{};
    for (std::size_t i = 0; i < inputs_; ++i) operands[i] = const_cast<void*>(l.in[i]);
    for (std::size_t o = 0; o < outputs_; ++o) operands[inputs_ + o] = l.out[o];
    return operands;
  }

  onednn::PrimitivePtr primitive_;
  std::size_t inputs_, outputs_;
};

// Runs a product whose operands are the kernel's two inputs in the other order, and its output.
class SwappedProduct final : public Kernel {
 public:
  explicit SwappedProduct(onednn::PrimitivePtr product) : product_(std::move(product)) {}
  std::int64_t workspace() const override { return product_->workspace(); }
  void run(const Launch& l) const override { product_->compute({l.in[1], l.in[0], l.out[0]}, l.workspace); }

 private:
  onednn::PrimitivePtr product_;
};

KernelPtr finish(onednn::PrimitivePtr primitive, const KernelSpec& spec) {
  if (!primitive) return nullptr;
  return std::make_unique<ConvKernel>(std::move(primitive), spec.inputs.size(), spec.outputs.size());
}

struct Operands {
  explicit Operands(const KernelSpec& spec)
      : s(static_cast<const ConvolutionOp&>(spec.op).size(spec.inputs)),
        x(image(spec.inputs[0].dtype, s.n, s.image, s.in)),
        w(weights(spec.inputs[0].dtype, s)),
        bias(vector(spec.inputs[0].dtype, s.out)),
        y(image(spec.inputs[0].dtype, s.n, s.output, s.out)),
        team{spec.op.cost(spec.inputs, spec.outputs).flops < kTeamFlops ? 1 : spec.threads},
        dense(dense_conv_is_faster(s, spec.inputs[0].dtype)),
        per_pixel(x.dtype == DType::f32 && s.groups == 1 && s.window.kernel == Size2(1) &&
                  s.window.stride == Size2(1) && s.window.padding == Size2(0)) {}
  Conv2dSize s;
  onednn::Operand x, w, bias, y;
  onednn::Team team;
  bool dense;      // computed as a matrix product (conv_dense.h)
  bool per_pixel;  // a matrix product of all pixels with the weights, in f32
};

// A 1×1 convolution is a product, and so are its gradients. Measured with oneDNN 2.6 on two threads with
// AVX-512, in GFLOP/s of at most 560:
//
//     n, h, channels → filters   image's gradient: product, convolution   weights': product, convolution
//      8, 147,  64 →  128                         387, 276                          273, 379
//     16,  56, 256 →   64                         387, 367                          345, 383
//     16,  56,  64 →  256                         426, 350                          293, 248
//     16,  28, 512 →  128                         509, 469                          475, 446
//      8,  19, 728 →  728                         486, 435                          469, 278
//     16,  14, 256 → 1024                         536, 491                          505, 453
//      8,   8, 1536 → 256                         525, 471                          526, 497
//
// Forward, the convolution is up to 1.6 times as fast and seldom slower. The product for the weights sums
// over all pixels, so a team shares it well only if there are more weights than pixels: four times as many
// tell the faster way in these rows but the third.
bool weights_are_many(const Conv2dSize& s) { return s.in * s.out >= 4 * s.n * s.image.h * s.image.w; }

}  // namespace

KernelPtr make_conv2d_cpu(const KernelSpec& spec) {
  const Operands o(spec);
  if (o.dense)
    if (KernelPtr kernel = make_dense_conv2d(spec, o.s)) return kernel;
  if (KernelPtr kernel = make_unfolded_conv2d(spec, o.s, o.team)) return kernel;
  return finish(
      onednn::convolution(o.x, o.w, spec.inputs.size() == 3 ? &o.bias : nullptr, o.y, o.s.window, o.team),
      spec);
}
KernelPtr make_conv2d_grad_input_cpu(const KernelSpec& spec) {
  const Operands o(spec);
  const std::int64_t pixels = o.s.n * o.s.image.h * o.s.image.w;
  if (o.dense)
    if (KernelPtr kernel = make_dense_conv2d_grad_input(spec, o.s)) return kernel;
  if (KernelPtr kernel = make_unfolded_conv2d_grad_input(spec, o.s, o.team)) return kernel;
  if (o.per_pixel)
    if (onednn::PrimitivePtr product =
            onednn::matmul(row_major(DType::f32, pixels, o.s.out), row_major(DType::f32, o.s.out, o.s.in),
                           nullptr, row_major(DType::f32, pixels, o.s.in), o.team))
      return finish(std::move(product), spec);
  return finish(onednn::convolution_grad_input(o.y, o.w, o.x, o.s.window, o.team), spec);
}
KernelPtr make_conv2d_grad_weight_cpu(const KernelSpec& spec) {
  const Operands o(spec);
  const std::int64_t pixels = o.s.n * o.s.image.h * o.s.image.w;
  if (o.dense)
    if (KernelPtr kernel = make_dense_conv2d_grad_weight(spec, o.s)) return kernel;
  if (KernelPtr kernel = make_unfolded_conv2d_grad_weight(spec, o.s, o.team)) return kernel;
  const onednn::Operand* bias = spec.outputs.size() == 2 ? &o.bias : nullptr;
  if (o.per_pixel && !bias && weights_are_many(o.s))
    if (onednn::PrimitivePtr product =
            onednn::matmul(transposed(DType::f32, pixels, o.s.out), row_major(DType::f32, pixels, o.s.in),
                           nullptr, row_major(DType::f32, o.s.out, o.s.in), o.team))
      return std::make_unique<SwappedProduct>(std::move(product));
  if (KernelPtr kernel = make_patches_conv2d_grad_weight(spec, o.s, o.team)) return kernel;
  if (KernelPtr kernel = make_shared_conv2d_grad_weight(o.x, o.y, o.w, bias, o.s.window, o.team))
    return kernel;
  return finish(onednn::convolution_grad_weight(o.x, o.y, o.w, bias, o.s.window, o.team), spec);
}

}  // namespace tandem::engine
