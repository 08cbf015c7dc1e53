#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tandem/core/base/types.h>
#include <tandem/ops/window.h>

/// oneDNN behind one header: only the files onednn* include its own, and both its second and its third API
/// are spoken. Without the library, onednn_absent.cpp stands in and there are no primitives.
namespace tandem::engine::onednn {

/// One operand, in oneDNN's order of axes whatever its order in memory: images (N,C,H,W), convolution
/// weights ([G,]O,I,H,W), matrices (rows, columns). Strides count elements.
struct Operand {
  DType dtype = DType::f32;
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;
  /// The library chooses the layout to compute in; where that is another one, the operand is repacked
  /// in the workspace at each run.
  bool repack = false;
};

/// A computation prepared for given operands and a given team. Running allocates nothing of ours and
/// keeps no state: several threads may run one Primitive at once, each with a workspace of its own.
class Primitive {
 public:
  struct Plan;
  Primitive(Plan plan, int threads, int callers);
  ~Primitive();

  /// Bytes of scratch memory that a run needs: the library's scratchpad and repacked operands.
  std::int64_t workspace() const;
  /// `operands`: addresses in the order in which the operands were described. Throws nothing, so that a
  /// member of a team may call it; gives a status, for `require_success`.
  int run(std::span<void* const> operands, void* workspace) const noexcept;
  /// A large result is made in equal parts, one after the other in memory: how many, and one of them. All of
  /// them, in order, are a run.
  int pieces() const;
  int run_piece(std::span<void* const> operands, void* workspace, int piece) const noexcept;
  /// Throws Error where `status` says that a run failed.
  void require_success(int status) const;
  /// The library's name of the implementation: "brg:avx512_core".
  const char* implementation() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
using PrimitivePtr = std::unique_ptr<const Primitive>;

/// The team a primitive runs on, and how many threads can run it at once without waiting for each other.
struct Team {
  int threads = 1;
  int callers = 4;
};

// Each returns null where the library cannot do it: not built in, or no implementation for the types.

/// c = a·b (+ bias over rows). Operands: a (M,K), b (K,N), bias (1,N) if not null, c (M,N).
PrimitivePtr matmul(const Operand& a, const Operand& b, const Operand* bias, const Operand& c, Team team);
/// Operands: image, weights, bias (O) if not null, output.
PrimitivePtr convolution(const Operand& image, const Operand& weights, const Operand* bias,
                         const Operand& output, const Window& window, Team team);
/// Operands: gradient of the output, weights, gradient of the image.
PrimitivePtr convolution_grad_input(const Operand& grad_output, const Operand& weights,
                                    const Operand& grad_image, const Window& window, Team team);
/// Operands: image, gradient of the output, gradient of the weights, of the bias if not null.
PrimitivePtr convolution_grad_weight(const Operand& image, const Operand& grad_output,
                                     const Operand& grad_weights, const Operand* grad_bias,
                                     const Window& window, Team team);

}  // namespace tandem::engine::onednn
