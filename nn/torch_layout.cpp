#include <tandem/nn/torch_layout.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/graph/state_dict.h>

namespace tandem::nn {
using namespace engine;
namespace {

// (rows, from, to) -> (rows, to, from): transposes the matrix in each row.
template <class T>
void transpose_rows_of(const T* in, T* out, std::int64_t rows, std::int64_t from, std::int64_t to) {
  for (std::int64_t r = 0; r < rows; ++r, out += from * to)
    for (std::int64_t i = 0; i < from; ++i)
      for (std::int64_t j = 0; j < to; ++j) out[j * from + i] = *in++;
}

void transpose_rows(const Tensor& value, Tensor& result, std::int64_t rows, std::int64_t from) {
  const std::int64_t to = value.elements() / rows / from;
  const auto as = [&](auto element) {
    using T = decltype(element);
    transpose_rows_of(static_cast<const T*>(value.data()), static_cast<T*>(result.data()), rows, from, to);
  };
  switch (size_of(value.dtype())) {
    case 8: return as(std::uint64_t{});
    case 4: return as(std::uint32_t{});
    case 2: return as(std::uint16_t{});
    default: return as(std::uint8_t{});
  }
}

}  // namespace

TensorType torch_type(const Parameter& p) {
  TensorType type = p.tensor.type();
  if (type.shape.size() == p.channels_last.size() && type.rank() > 2)
    std::rotate(type.shape.begin() + 1, type.shape.end() - 1, type.shape.end());
  return type;
}

Tensor to_torch(const Parameter& p, const Tensor& value) {
  if (p.channels_last.empty() || value.elements() == 0) return value;
  Tensor result = Tensor::empty(torch_type(p));
  const std::int64_t rows = p.channels_last.front(), channels = p.channels_last.back();
  transpose_rows(value, result, rows, value.elements() / rows / channels);
  return result;
}

Tensor from_torch(const Parameter& p, const Tensor& value) {
  if (p.channels_last.empty() || value.elements() == 0) return value;
  Tensor result = Tensor::empty(p.tensor.type());
  transpose_rows(value, result, p.channels_last.front(), p.channels_last.back());
  return result;
}

std::map<std::string, TensorSource> torch_sources(ModuleBase& module, const StateDict& state,
                                                  std::int64_t batches, std::int64_t model,
                                                  std::int64_t models) {
  std::map<std::string, TensorSource> result;
  for (const auto& [path, p] : module.named_parameters()) {
    const auto found = state.find(path);
    if (found == state.end()) throw Error(fmt::format("the state has no '{}', which the model has", path));
    TensorType expected = p->tensor.type();
    if (models > 1) expected.shape.insert(expected.shape.begin(), models);
    if (found->second.type() != expected)
      throw Error(fmt::format("the state's '{}' is {}, the model's {}", path, to_string(found->second.type()),
                              to_string(expected)));
    result.emplace(path, TensorSource{torch_type(*p), [p = *p, value = &found->second, model, models] {
                                        return to_torch(p, unstack_state(*value, model, models));
                                      }});
  }
  for (const std::string& path : module.torch_counters()) {
    const auto make = [batches] {
      Tensor count = Tensor::empty({DType::i64, {}});
      *count.as<std::int64_t>() = batches;
      return count;
    };
    result.emplace(path, TensorSource{{DType::i64, {}}, make});
  }
  return result;
}

StateDict torch_state(ModuleBase& module, const StateDict& state, std::int64_t batches) {
  StateDict result;
  for (const auto& [path, tensor] : torch_sources(module, state, batches))
    result.emplace(path, tensor.make());
  return result;
}

}  // namespace tandem::nn
