#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tandem/core/base/element.h>
#include <tandem/core/base/types.h>

namespace tandem {

/// A cheap handle. Outside a trace an op on Tensors runs at once (eager.h) on the CPU kernels, and
/// `backward()` (autograd/backward.cpp) works; inside a Trace the op adds a node to the trace's Graph and
/// the Tensor names a value. A Tensor can also name a State (a parameter or buffer of a Module):
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
  /// Throws Error if an integer type cannot hold the value, for example a fraction; so does `from`.
  static Tensor full(TensorType type, double value);
  /// Converts `values` to `dtype`; there must be as many as the shape holds.
  static Tensor from(const std::vector<double>& values, Shape shape, DType dtype = DType::f32);

  /// The elements, of eager Tensors only. Throws Error for a traced Tensor.
  void* data();
  const void* data() const;
  /// Throws Error unless T stores elements of this dtype (core/base/element.h), or is std::byte.
  template <class T> T* as() {
    return static_cast<T*>(data_if(engine::stores<T>(dtype()) || std::is_same_v<T, std::byte>));
  }
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
  void* data_if(bool stored);
  std::shared_ptr<Impl> impl_;
};

using Tensors = std::vector<Tensor>;
/// The state of a model, and optionally of its optimizer, by path: "layer1.0.conv2.weight".
using StateDict = std::map<std::string, Tensor>;

/// Returns whether all elements are finite; true if the dtype is not floating. Throws Error if t is traced.
bool all_finite(const Tensor& t);

/// Gives a state Tensor a new value, which all later reads return. When eager it copies the value, and a
/// `backward` that still needs the old value throws Error. Inside a trace it adds an `assign` node, at most
/// one per state.
void assign(const Tensor& state, const Tensor& value);

}  // namespace tandem
