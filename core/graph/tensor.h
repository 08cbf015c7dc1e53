#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/base/types.h>

namespace tandem {

/// A cheap handle. Outside a trace an op on Tensors runs at once (eager.h) on the CPU kernels, and
/// `backward()` (autograd/backward.cpp) works; inside a Trace the op adds a node to the trace's Graph and
/// the Tensor names a value. A Tensor may also name a State (a parameter or buffer of a Module):
/// it then holds the state's memory when eager and becomes a `read` node when traced.
class Tensor {
 public:
  Tensor() = default;
  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const { return defined(); }

  const TensorType& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  /// Extent of `axis`; negative counts from the end.
  std::int64_t size(int axis) const;
  std::int64_t elements() const { return type().elements(); }

  /// Uninitialized memory (poisoned in debug builds).
  static Tensor empty(TensorType type);
  static Tensor zeros(TensorType type);
  /// Throws Error where an integer type cannot hold the value, as for one with a fraction; so does `from`.
  static Tensor full(TensorType type, double value);
  /// Converts `values` to `dtype`; there must be as many as the shape holds.
  static Tensor from(const std::vector<double>& values, Shape shape, DType dtype = DType::f32);

  /// The elements; eager Tensors only (throws inside a trace).
  void* data();
  const void* data() const;
  /// Throws Error where elements have another size than T, unless that is a byte.
  template <class T> T* as() { return static_cast<T*>(elements_of(sizeof(T))); }
  template <class T> const T* as() const { return const_cast<Tensor*>(this)->as<T>(); }
  std::span<std::byte> bytes() { return {as<std::byte>(), static_cast<std::size_t>(type().bytes())}; }
  std::span<const std::byte> bytes() const { return const_cast<Tensor*>(this)->bytes(); }
  /// All elements as double, in order.
  std::vector<double> values() const;
  /// The only element.
  double item() const;

  /// Marks a leaf whose gradient `backward()` computes into `grad()`.
  Tensor& requires_grad(bool on = true);
  bool needs_grad() const;
  Tensor grad() const;
  void set_grad(Tensor grad);
  /// Gradients of this scalar with respect to every leaf that requires one, added to their `grad()`.
  /// Defined in autograd/.
  void backward() const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  void* elements_of(std::size_t bytes);
  std::shared_ptr<Impl> impl_;
};

using Tensors = std::vector<Tensor>;
/// State by path, "layer1.0.conv2.weight": of a model, and perhaps of its optimizer.
using StateDict = std::map<std::string, Tensor>;

/// Is every element finite? True of a dtype that is not floating. Throws Error inside a trace.
bool all_finite(const Tensor& t);

/// Gives a state Tensor a new value, which is what it is read as from then on: a copy when eager, an `assign`
/// node inside a trace, at most one a state. A `backward` that still needs the value before, when eager,
/// throws Error.
void assign(const Tensor& state, const Tensor& value);

}  // namespace tandem
