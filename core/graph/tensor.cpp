#include <tandem/core/graph/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/tensor_impl.h>
#include <tandem/core/graph/trace.h>

namespace tandem {
using namespace engine;
namespace {

const Tensor::Impl& get(const Tensor& tensor) {
  if (!tensor.defined())
    throw Error("a Tensor is used that was given no value, as grad() is before backward()");
  return *tensor.impl();
}

}  // namespace

const TensorType& Tensor::type() const { return get(*this).type; }

std::int64_t Tensor::size(int axis) const {
  const int rank = type().rank();
  const int i = axis < 0 ? axis + rank : axis;
  if (i < 0 || i >= rank) throw Error(fmt::format("axis {} is out of range for {}", axis, to_string(type())));
  return shape()[static_cast<std::size_t>(i)];
}

Tensor Tensor::empty(TensorType type) {
  auto impl = std::make_shared<Impl>();
  impl->buffer = allocate(type.bytes());
  impl->type = std::move(type);
  return Tensor(std::move(impl));
}

Tensor Tensor::zeros(TensorType type) {
  Tensor t = empty(std::move(type));
  std::memset(t.data(), 0, static_cast<std::size_t>(t.type().bytes()));
  return t;
}

namespace {
// Requires that an integer type can hold the value; else a conversion would truncate it, or be undefined.
void require_value(DType dtype, double value) {
  const auto fits = [&]<class T>(T) {
    const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);  // one more than the largest
    return value == std::trunc(value) && value < above &&
           value >= static_cast<double>(std::numeric_limits<T>::min());
  };
  const bool good = dtype == DType::i32   ? fits(std::int32_t{})
                    : dtype == DType::i64 ? fits(std::int64_t{})
                    : dtype == DType::u8  ? fits(std::uint8_t{})
                                          : true;
  if (!good) throw Error(fmt::format("{} does not fit the dtype {}", value, name_of(dtype)));
}
}  // namespace

Tensor Tensor::full(TensorType type, double value) {
  require_value(type.dtype, value);
  Tensor t = empty(std::move(type));
  for (std::int64_t i = 0; i < t.elements(); ++i) store_element(t.dtype(), t.data(), i, value);
  return t;
}

Tensor Tensor::from(const std::vector<double>& values, Shape shape, DType dtype) {
  Tensor t = empty({dtype, std::move(shape)});
  if (static_cast<std::int64_t>(values.size()) != t.elements())
    throw Error(fmt::format("{} values do not fill {}", values.size(), to_string(t.type())));
  for (std::size_t i = 0; i < values.size(); ++i) {
    require_value(dtype, values[i]);
    store_element(dtype, t.data(), static_cast<std::int64_t>(i), values[i]);
  }
  return t;
}

template <class T>
requires std::is_same_v<T, float> || std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t> Tensor
Tensor::from(const std::vector<T>& values, Shape shape, std::optional<DType> dtype) {
  constexpr DType own = std::is_same_v<T, float>          ? DType::f32
                        : std::is_same_v<T, std::int32_t> ? DType::i32
                                                          : DType::i64;
  if (dtype.value_or(own) != own)
    return from(std::vector<double>(values.begin(), values.end()), std::move(shape), *dtype);
  Tensor t = empty({own, std::move(shape)});
  if (static_cast<std::int64_t>(values.size()) != t.elements())
    throw Error(fmt::format("{} values do not fill {}", values.size(), to_string(t.type())));
  std::ranges::copy(values, t.as<T>());
  return t;
}
template Tensor Tensor::from(const std::vector<float>&, Shape, std::optional<DType>);
template Tensor Tensor::from(const std::vector<std::int32_t>&, Shape, std::optional<DType>);
template Tensor Tensor::from(const std::vector<std::int64_t>&, Shape, std::optional<DType>);

void Tensor::Impl::fetch_from_source() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!source_) return;  // another thread was first
  source_->fetch(*this);
  set_source(nullptr);
}

void* Tensor::data() {
  get(*this);
  ++impl_->changes;
  return const_cast<void*>(std::as_const(*this).data());
}

const void* Tensor::data() const {
  if (get(*this).trace)
    throw Error(
        "a traced Tensor has no data: a Program computes it later; deliver(\"name\", tensor) makes it a result of the "
        "step");
  impl_->fetch();
  return impl_->buffer.get();
}

void Tensor::require_stored(bool stored) const {
  if (!stored) throw Error(fmt::format("the elements of {} are read as another C++ type", to_string(type())));
}

std::vector<double> Tensor::values() const {
  std::vector<double> result(static_cast<std::size_t>(elements()));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = load_element(dtype(), data(), static_cast<std::int64_t>(i));
  return result;
}

double Tensor::only_element() const {
  if (elements() != 1)
    throw Error(fmt::format("item() of {}: it is for a Tensor of one element", to_string(type())));
  return load_element(dtype(), data(), 0);
}

std::int64_t Tensor::only_integer(std::int64_t least, std::uint64_t most) const {
  const double value = only_element();
  const bool exact = dtype() == DType::i64, whole = exact || std::abs(value) < 0x1p63;
  const std::int64_t integer = exact ? as<std::int64_t>()[0] : whole ? static_cast<std::int64_t>(value) : 0;
  if (!whole || (!exact && static_cast<double>(integer) != value) || integer < least ||
      (integer > 0 && static_cast<std::uint64_t>(integer) > most))
    throw Error(fmt::format("item() of {}: {} does not fit the integer type", to_string(type()), value));
  return integer;
}

Tensor& Tensor::requires_grad(bool on) {
  get(*this);
  if (on && !is_floating(dtype()))
    throw Error(fmt::format("{} has no gradient: it is not floating", to_string(type())));
  impl_->requires_grad = on;
  return *this;
}
bool Tensor::needs_grad() const { return defined() && (impl_->requires_grad || impl_->history); }
Tensor Tensor::grad() const { return get(*this).grad; }
void Tensor::set_grad(Tensor grad) {
  get(*this);
  impl_->grad = std::move(grad);
}

bool all_finite(const Tensor& t) { return engine::all_finite(t.type(), t.data()); }

Tensor engine::without_history(const Tensor& x) {
  auto shared = std::make_shared<Tensor::Impl>();
  shared->type = x.impl()->type;
  shared->buffer = x.impl()->buffer;
  return Tensor(std::move(shared));
}

Tensor detach(const Tensor& x) {
  const Tensor::Impl& impl = get(x);
  if (impl.trace == 0 && impl.state.empty()) {
    x.data();  // throws Error if it has no contents
    return without_history(x);
  }
  if (Trace* trace = Trace::active()) return trace->apply(std::make_shared<DetachOp>(), {x}).at(0);
  Tensor copy = Tensor::empty(x.type());
  std::memcpy(copy.data(), x.data(), copy.bytes().size());
  return copy;
}

void assign(const Tensor& state, const Tensor& value) {
  if (!value) throw Error("assign: the second Tensor was given no value");
  if (get(state).state.empty())
    throw Error("assign: the first Tensor is no state of a module that was initialized or loaded");
  if (state.type() != value.type())
    throw Error(fmt::format("state '{}' is {}, the value {}", state.impl()->state, to_string(state.type()),
                            to_string(value.type())));
  if (Trace* trace = Trace::active()) {
    trace->value(state);  // adds the state to the graph
    trace->assign(trace->graph().find_state(state.impl()->state), value);
    return;
  }
  set_elements(*state.impl(), value.data());
}

void engine::set_elements(Tensor::Impl& state, const void* elements) {
  state.set_source(nullptr);
  ++state.version;
  ++state.changes;
  std::memcpy(state.buffer.get(), elements, static_cast<std::size_t>(state.type.bytes()));
}

}  // namespace tandem
