#include <tandem/nn/torch_layout.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/error.h>

namespace tandem::nn {
namespace {

// (rows, from, to) -> (rows, to, from), a matrix of elements transposed in each row.
void transpose_rows(const Tensor& value, Tensor& result, std::int64_t rows, std::int64_t from,
                    std::int64_t to) {
  const auto size = static_cast<std::size_t>(size_of(value.dtype()));
  const std::byte* in = value.as<std::byte>();
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < from; ++i)
      for (std::int64_t j = 0; j < to; ++j, in += size)
        std::memcpy(result.as<std::byte>() + static_cast<std::size_t>((r * to + j) * from + i) * size, in,
                    size);
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
  transpose_rows(value, result, rows, value.elements() / rows / channels, channels);
  return result;
}

Tensor from_torch(const Parameter& p, const Tensor& value) {
  if (p.channels_last.empty() || value.elements() == 0) return value;
  Tensor result = Tensor::empty(p.tensor.type());
  const std::int64_t rows = p.channels_last.front(), channels = p.channels_last.back();
  transpose_rows(value, result, rows, channels, value.elements() / rows / channels);
  return result;
}

std::map<std::string, Tensor> torch_state(Module& module, const std::map<std::string, Tensor>& state,
                                          std::int64_t batches) {
  std::map<std::string, Tensor> result;
  for (const auto& [path, p] : module.named_parameters()) {
    const auto found = state.find(path);
    if (found == state.end()) throw Error(fmt::format("the state has no '{}', which the model has", path));
    if (found->second.type() != p->tensor.type())
      throw Error(fmt::format("the state's '{}' is {}, the model's {}", path, to_string(found->second.type()),
                              to_string(p->tensor.type())));
    result.emplace(path, to_torch(*p, found->second));
  }
  for (const std::string& path : module.torch_counters()) {
    Tensor count = Tensor::empty({DType::i64, {}});
    *count.as<std::int64_t>() = batches;
    result.emplace(path, std::move(count));
  }
  return result;
}

}  // namespace tandem::nn
