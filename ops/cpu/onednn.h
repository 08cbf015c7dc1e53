#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include <tandem/core/base/types.h>
#include <tandem/ops/window.h>

/// The only interface to oneDNN: no file except onednn* includes its headers. Versions 2 and 3 of its API
/// both work. A build without the library uses onednn_absent.cpp, in which no primitive exists.
namespace tandem::engine::onednn {

/// One operand. Its axes are in oneDNN's order, whatever the order in memory: images (N,C,H,W), convolution
/// weights ([G,]O,I,H,W), matrices (rows, columns). Strides count elements.
struct Operand {
  DType dtype = DType::f32;
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;
  /// True: the library chooses the layout to compute in. If that layout differs, each run repacks the operand
  /// in the workspace.
  bool repack = false;
};

/// A computation prepared for given operands and a given team. A run keeps no state, and Tandem allocates
/// nothing in it. Several threads can run one Primitive at once, each with its own workspace.
class Primitive {
 public:
  struct Plan;
  Primitive(Plan plan, int threads, int callers);
  ~Primitive();

  /// Returns the bytes of scratch memory that a run needs: the library's scratchpad and repacked operands.
  std::int64_t workspace() const;
  /// Runs the computation. `operands` are addresses, in the order in which the operands were described.
  /// Returns a status for `require_success`; throws nothing, so that a member of a team can call it.
  int run(std::span<void* const> operands, void* workspace) const noexcept;
  /// Runs the computation and throws Error if it fails. Takes at most four operands.
  void compute(std::initializer_list<const void*> operands, void* workspace) const;
  /// A run computes a large result in equal pieces, which follow each other in memory. `pieces` returns their
  /// number; `run_piece` computes one. Computing all of them in order equals a run.
  int pieces() const;
  int run_piece(std::span<void* const> operands, void* workspace, int piece) const noexcept;
  /// Throws Error if `status` reports a failed run.
  void require_success(int status) const;
  /// Returns the library's name of the implementation, such as "brg:avx512_core".
  const char* implementation() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
using PrimitivePtr = std::unique_ptr<const Primitive>;

/// The number of threads that a primitive runs on, and the number of callers that can run it at once without
/// waiting for each other.
struct Team {
  int threads = 1;
  int callers = 4;
};

/// A matrix of f32 in memory, row by row; `transposed`: column by column.
struct Matrix {
  const float* data;
  std::int64_t stride;  ///< elements from one row to the next; transposed: from one column
  bool transposed = false;
};
/// Returns whether the build has `gemm`.
bool has_gemm();
/// Computes c (m,n) = a (m,k) · b (k,n), or adds it to c. Runs on the caller's team (TeamSize), inside a team
/// on the calling thread. Nothing is prepared, which suits small products of many sizes. Returns a status
/// that is not 0 if it failed.
int gemm(const Matrix& a, const Matrix& b, float* c, std::int64_t c_stride, std::int64_t m, std::int64_t n,
         std::int64_t k, bool adds) noexcept;

/// Returns whether the processor multiplies bf16 on AMX's tiles, and the library may (ONEDNN_MAX_CPU_ISA).
bool has_amx();

// Each returns null if the build lacks the library, or the library has no implementation for the types.

/// c = a·b (+ bias over rows). Operands: a (M,K), b (K,N), bias (1,N) if not null, c (M,N).
PrimitivePtr matmul(const Operand& a, const Operand& b, const Operand* bias, const Operand& c, Team team);

/// Products of different a (M,K) with the same b (K,N), which is packed once for all of them. Both primitives
/// are null if there is no implementation. They need separate workspaces.
struct PackedMatmul {
  PrimitivePtr pack;              ///< operands: b, and the packed b
  PrimitivePtr product;           ///< operands: a, the packed b, c
  std::int64_t packed_bytes = 0;  ///< of the packed b
};
/// c = a·b, or c = c + a·b if `adds`.
PackedMatmul packed_matmul(const Operand& a, const Operand& b, const Operand& c, bool adds, Team team);
/// Operands: image, weights, bias (O) if not null, output.
PrimitivePtr convolution(const Operand& image, const Operand& weights, const Operand* bias,
                         const Operand& output, const Window& window, Team team);
/// Operands: gradient of the output, weights, gradient of the image.
PrimitivePtr convolution_grad_input(const Operand& grad_output, const Operand& weights,
                                    const Operand& grad_image, const Window& window, Team team);
/// Operands: image, gradient of the output, gradient of the weights, gradient of the bias if not null.
PrimitivePtr convolution_grad_weight(const Operand& image, const Operand& grad_output,
                                     const Operand& grad_weights, const Operand* grad_bias,
                                     const Window& window, Team team);

}  // namespace tandem::engine::onednn
