#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <tandem/core/base/element.h>
#include <tandem/core/base/types.h>

namespace tandem {

/// The indices begin, begin + step, … before `end` of an axis. Negative places count from the end; without
/// `begin` or `end` it reaches the axis's own.
struct Slice {
  std::optional<std::int64_t> begin{}, end{};
  std::int64_t step = 1;
};

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
  /// Takes numbers of another type, and keeps it: float (f32), int (i32) or std::int64_t (i64). With a
  /// `dtype`, converts them to it.
  template <class T>
  requires std::is_same_v<T, float> || std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t>
  static Tensor from(const std::vector<T>& values, Shape shape, std::optional<DType> dtype = {});

  /// The elements, of eager Tensors only. Throws Error for a traced Tensor. To change a parameter, call
  /// `data()`, `as` or `bytes` each time: a TrainStep that trains it writes it too.
  void* data();
  const void* data() const;
  /// Throws Error unless T stores elements of this dtype (core/base/element.h), or is std::byte.
  template <class T> T* as() {
    require_stored(engine::stores<T>(dtype()) || std::is_same_v<T, std::byte>);
    return static_cast<T*>(data());
  }
  template <class T> const T* as() const {
    require_stored(engine::stores<T>(dtype()) || std::is_same_v<T, std::byte>);
    return static_cast<const T*>(data());
  }
  std::span<std::byte> bytes() { return {as<std::byte>(), static_cast<std::size_t>(type().bytes())}; }
  std::span<const std::byte> bytes() const {
    return {as<std::byte>(), static_cast<std::size_t>(type().bytes())};
  }
  /// All elements as double, in order.
  std::vector<double> values() const;
  /// The only element. Throws Error if there are others, or if T is an integer type that cannot hold it.
  template <class T = double> T item() const {
    static_assert(std::is_arithmetic_v<T>);
    if constexpr (std::is_floating_point_v<T>)
      return static_cast<T>(only_element());
    else
      return static_cast<T>(only_integer(std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max()));
  }

  /// The part at an index of the first axis, without this axis. Negative indices count from the end. Throws
  /// Error if the index is out of range.
  Tensor operator[](std::int64_t i) const;
  /// The part at an index or a Slice of each axis: NumPy's x[0, 1:-1, ::2] is x(0, Slice{1, -1}, Slice{.step
  /// = 2}). Axes that are not named are whole. Throws Error if the part is empty. Defined in ops/.
  template <class... Indices> Tensor operator()(const Indices&... indices) const { return at({indices...}); }
  using Index = std::variant<std::int64_t, Slice>;
  Tensor at(const std::vector<Index>& indices) const;

  /// Marks a leaf whose gradient `backward()` computes into `grad()`. A parameter of a module is marked from
  /// the beginning; `requires_grad(false)` freezes it, in later traces too.
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
  void require_stored(bool stored) const;
  double only_element() const;
  std::int64_t only_integer(std::int64_t least, std::uint64_t most) const;
  std::shared_ptr<Impl> impl_;
};

/// Returns type and elements, "f32[2, 2]\n[[1, 2],\n [3, 4]]". Of a Tensor of more than 1000 elements, it
/// shows three at both ends of each axis longer than seven. operator<< writes the same.
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

using Tensors = std::vector<Tensor>;
/// The state of a model, and optionally of its optimizer, by path: "layer1.0.conv2.weight".
using StateDict = std::map<std::string, Tensor>;

/// Returns whether all elements are finite; true if the dtype is not floating. Throws Error if t is traced.
bool all_finite(const Tensor& t);

/// Returns the Tensor without its history: no gradient passes to what it was computed from. A state's value
/// is copied, since a later `assign` changes the state; other eager Tensors share their elements.
Tensor detach(const Tensor& x);

/// Gives a state Tensor a new value, which all later reads return. When eager it copies the value, and a
/// `backward` that still needs the old value throws Error. Inside a trace it adds an `assign` node; the last
/// one of a batch gives the state's next value. No gradient passes through a state: later reads are as if the
/// value were data.
void assign(const Tensor& state, const Tensor& value);

}  // namespace tandem
