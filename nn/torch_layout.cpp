#include <tandem/nn/torch_layout.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/named.h>
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

// (rows, columns) -> (columns, rows).
Tensor transposed(const Tensor& matrix) {
  Tensor result = Tensor::empty({matrix.dtype(), {matrix.size(1), matrix.size(0)}});
  if (matrix.elements() > 0) transpose_rows(matrix, result, 1, matrix.size(0));
  return result;
}

// The names in a file of what a parameter holds, and the rules that give them.
std::vector<std::pair<std::string, LayoutRule>> names_in(const FileLayout& layout, const std::string& path) {
  std::vector<std::pair<std::string, LayoutRule>> names;
  std::vector<std::string> stars;
  for (const LayoutRule& rule : layout.rules)
    if (matches(rule.ours, path, stars)) names.emplace_back(with_stars(rule.theirs, stars), rule);
  if (names.empty()) names.emplace_back(path, LayoutRule{});
  return names;
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

FileLayout file_layout(const ModuleBase& module, const std::string& library) {
  if (library.empty()) return {};
  std::vector<std::string> known;
  for (FileLayout& layout : module.file_layouts()) {
    if (layout.library == library) return std::move(layout);
    known.push_back(layout.library);
  }
  if (known.empty()) throw Error(fmt::format("this model has no names of {}, only its own", library));
  refuse_name(library, known, "library of names");
}

std::map<std::string, StoredTensor> stored_tensors(ModuleBase& module, const FileLayout& layout) {
  std::map<std::string, StoredTensor> result;
  for (const auto& [path, p] : module.named_parameters())
    for (const auto& [name, rule] : names_in(layout, path)) {
      TensorType type = torch_type(*p);
      if (type.rank() > 0) {
        if (type.shape[0] % rule.parts != 0)
          throw Error(fmt::format("'{}', {}, does not split into {} equal parts for files of {}", path,
                                  to_string(type), rule.parts, layout.library));
        type.shape[0] = type.shape[0] / rule.parts * rule.their_parts;
      }
      if (rule.input_first) std::reverse(type.shape.begin(), type.shape.end());
      StoredTensor& stored = result.try_emplace(name, StoredTensor{type, rule.input_first}).first->second;
      stored.pieces.push_back({path, *p, rule.part, rule.parts, rule.their_part, rule.their_parts});
    }
  return result;
}

Tensor to_file(const StoredTensor& stored, const std::function<Tensor(const std::string& path)>& value) {
  const auto whole = [&](const StoredTensor::Piece& p) { return to_torch(p.parameter, value(p.path)); };
  const StoredTensor::Piece& first = stored.pieces.front();
  Tensor result;
  if (first.parts == 1 && first.their_parts == 1) {
    result = whole(first);
  } else {
    result = Tensor::empty(stored.type);
    for (const StoredTensor::Piece& p : stored.pieces) {
      const Tensor from = whole(p);
      const std::int64_t bytes = from.type().bytes() / p.parts;
      std::copy_n(from.as<std::byte>() + p.part * bytes, bytes,
                  result.as<std::byte>() + p.their_part * bytes);
    }
  }
  return stored.input_first ? transposed(result) : result;
}

void from_file(const StoredTensor& stored, const Tensor& value, StateDict& parameters) {
  const Tensor upright = stored.input_first ? transposed(value) : value;
  for (const StoredTensor::Piece& p : stored.pieces) {
    Tensor& to = parameters[p.path];
    if (p.parts == 1 && p.their_parts == 1) {
      to = upright;
      continue;
    }
    if (!to) to = Tensor::empty({upright.dtype(), torch_type(p.parameter).shape});
    const std::int64_t bytes = to.type().bytes() / p.parts;
    std::copy_n(upright.as<std::byte>() + p.their_part * bytes, bytes, to.as<std::byte>() + p.part * bytes);
  }
}

std::map<std::string, TensorSource> torch_sources(ModuleBase& module, const StateDict& state,
                                                  std::int64_t batches, std::int64_t model,
                                                  std::int64_t models, const FileLayout& layout) {
  std::map<std::string, TensorSource> result;
  for (const auto& [path, p] : module.named_parameters()) {
    const auto found = state.find(path);
    if (found == state.end()) throw Error(fmt::format("the state has no '{}', which the model has", path));
    TensorType expected = p->tensor.type();
    if (models > 1) expected.shape.insert(expected.shape.begin(), models);
    if (found->second.type() != expected)
      throw Error(fmt::format("the state's '{}' is {}, the model's {}", path, to_string(found->second.type()),
                              to_string(expected)));
  }
  for (const auto& [name, stored] : stored_tensors(module, layout)) {
    const auto make = [stored = stored, &state, model, models] {
      return to_file(stored,
                     [&](const std::string& path) { return unstack_state(state.at(path), model, models); });
    };
    result.emplace(name, TensorSource{stored.type, make});
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
