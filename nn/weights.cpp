#include <tandem/nn/weights.h>

#include <set>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/files.h>
#include <tandem/core/graph/tensor_impl.h>
#include <tandem/nn/safetensors.h>
#include <tandem/nn/torch_layout.h>

namespace tandem::nn {
using namespace engine;
namespace {

// With `convert`, any floating-point type fits any other.
bool fits(const TensorType& given, const TensorType& wanted, bool convert) {
  return given.shape == wanted.shape &&
         (given.dtype == wanted.dtype || (convert && is_floating(given.dtype) && is_floating(wanted.dtype)));
}

Tensor converted(const Tensor& from, DType dtype) {
  if (from.dtype() == dtype) return from;
  Tensor to = Tensor::empty({dtype, from.shape()});
  for (std::int64_t i = 0; i < from.elements(); ++i)
    store_element(dtype, to.data(), i, load_element(from.dtype(), from.data(), i));
  return to;
}

WeightsReport compare(ModuleBase& module, const SafetensorsFile& file, bool convert) {
  WeightsReport report;
  std::set<std::string> known;
  for (const std::string& path : module.torch_counters()) known.insert(path);
  for (const auto& [path, p] : module.named_parameters()) {
    known.insert(path);
    const auto found = file.tensors().find(path);
    if (found == file.tensors().end())
      report.missing.push_back(path);
    else if (const TensorType wanted = torch_type(*p); !fits(found->second.type, wanted, convert))
      report.mismatched.push_back(
          fmt::format("{}: {}, the model's {}", path, to_string(found->second.type), to_string(wanted)));
  }
  for (const auto& [name, entry] : file.tensors())
    if (!known.contains(name)) report.unexpected.push_back(shown(name));
  return report;
}

// Limits the list: a bad file can have a hundred thousand unexpected names.
std::string listed(const WeightsReport& report) {
  constexpr std::size_t kListed = 100;
  std::string lines;
  for (const auto& [what, names] : {std::pair("missing", &report.missing),
                                    {"unexpected", &report.unexpected},
                                    {"mismatched", &report.mismatched}})
    for (std::size_t i = 0; i < names->size(); ++i) {
      if (i == kListed) {
        lines += fmt::format("\n  {}: {} more", what, names->size() - i);
        break;
      }
      lines += fmt::format("\n  {}: {}", what, (*names)[i]);
    }
  return lines;
}

struct Weights {
  StateDict state;
  WeightsReport report;
};

Weights read(ModuleBase& module, const std::string& file, const LoadOptions& options) {
  const SafetensorsFile weights(file);
  WeightsReport report = compare(module, weights, options.convert);
  const std::string problems = listed(report);
  if (!problems.empty() && !options.partial)
    throw Error(fmt::format("'{}' does not fit the model:{}", file, problems));
  StateDict state;
  bool any = false;
  for (const auto& [name, p] : module.named_parameters()) {
    const auto found = weights.tensors().find(name);
    if (found != weights.tensors().end() && fits(found->second.type, torch_type(*p), options.convert)) {
      state.emplace(name, from_torch(*p, converted(weights.read(name), p->tensor.dtype())));
      any = true;
    } else if (!p->tensor.impl()->state.empty()) {
      state.emplace(name, p->tensor);
    } else {
      throw Error(fmt::format(
          "'{}' lacks '{}', and the model has no contents for it: initialize() it before a partial "
          "load",
          file, name));
    }
  }
  if (!any && !state.empty())
    throw Error(fmt::format("'{}' has nothing that fits the model:{}", file, problems));
  return {std::move(state), std::move(report)};
}

}  // namespace

WeightsReport load_weights(ModuleBase& module, const std::string& file, const LoadOptions& options) {
  Weights weights = read(module, file, options);
  module.load(weights.state);
  return std::move(weights.report);
}

StateDict read_weights(ModuleBase& module, const std::string& file, const LoadOptions& options) {
  return read(module, file, options).state;
}

void save_weights(ModuleBase& module, const std::string& file) {
  const auto state = module.state();
  const auto tensors = torch_sources(module, state, 0);
  replace_durably(Files::system(), file, [&](const Sink& sink) { write_safetensors(tensors, sink); });
}

}  // namespace tandem::nn
