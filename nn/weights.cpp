#include <tandem/nn/weights.h>

#include <algorithm>
#include <cmath>
#include <map>
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

Tensor converted(const std::string& name, const Tensor& from, DType dtype) {
  if (from.dtype() == dtype) return from;
  Tensor to = Tensor::empty({dtype, from.shape()});
  for (std::int64_t i = 0; i < from.elements(); ++i) {
    const double value = load_element(from.dtype(), from.data(), i);
    store_element(dtype, to.data(), i, value);
    if (std::isfinite(value) && !std::isfinite(load_element(dtype, to.data(), i)))
      throw Error(fmt::format("'{}' has {:g}, which is too large for {}", name, value, name_of(dtype)));
  }
  return to;
}

// A file read as a layout has it.
struct Reading {
  FileLayout layout;
  std::map<std::string, StoredTensor> stored;  // by name
  std::map<std::string, std::string> names;    // of stored tensors that fit: their names in the file
  WeightsReport report;

  std::size_t problems() const {
    return report.missing.size() + report.unexpected.size() + report.mismatched.size();
  }
};

// A name without what differs between files of one library.
std::string plain_name(const FileLayout& layout, std::string name) {
  if (!layout.prefix.empty() && name.starts_with(layout.prefix)) name.erase(0, layout.prefix.size());
  for (const auto& [old, now] : layout.old_endings)
    if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), now);
  return name;
}

Reading read_as(FileLayout layout, ModuleBase& module, const SafetensorsFile& file, bool convert) {
  std::map<std::string, StoredTensor> stored_here = stored_tensors(module, layout);
  Reading reading{std::move(layout), std::move(stored_here), {}, {}};
  WeightsReport& report = reading.report;
  std::map<std::string, std::string> given;  // plain names, and names in the file
  for (const auto& [name, entry] : file.tensors())
    if (const auto [first, added] = given.emplace(plain_name(reading.layout, name), name); !added)
      report.unexpected.push_back(fmt::format("{}, which is '{}' again", shown(name), shown(first->second)));
  for (const auto& [name, stored] : reading.stored) {
    const auto found = given.find(plain_name(reading.layout, name));
    if (found == given.end()) {
      report.missing.push_back(name);
      continue;
    }
    const TensorType& type = file.tensors().at(found->second).type;
    if (fits(type, stored.type, convert))
      reading.names.emplace(name, found->second);
    else
      report.mismatched.push_back(
          fmt::format("{}: {}, the model's {}", found->second, to_string(type), to_string(stored.type)));
    given.erase(found);
  }
  for (const std::string& path : module.torch_counters()) given.erase(path);
  std::vector<std::string> stars;
  for (const auto& [plain, name] : given) {
    const bool known =
        std::ranges::any_of(reading.layout.ignored,
                            [&](const auto& p) { return matches(p, plain, stars); }) ||
        std::ranges::any_of(reading.layout.tied, [&](const auto& tie) { return tie.first == plain; });
    if (!known) report.unexpected.push_back(shown(name));
  }
  std::ranges::sort(report.unexpected);
  report.library = reading.layout.library;
  return reading;
}

// The reading in which most tensors fit, and of those the one with the fewest differences; the model's own
// names come first.
Reading best_reading(ModuleBase& module, const SafetensorsFile& file, bool convert) {
  Reading best = read_as({}, module, file, convert);
  for (FileLayout& layout : module.file_layouts()) {
    if (best.problems() == 0) break;
    Reading other = read_as(std::move(layout), module, file, convert);
    if (std::pair(other.names.size(), best.problems()) > std::pair(best.names.size(), other.problems()))
      best = std::move(other);
  }
  return best;
}

// Throws Error if the file has another tensor in the place of one that repeats a parameter.
void check_ties(const Reading& reading, const SafetensorsFile& file) {
  for (const auto& [repeats, name] : reading.layout.tied) {
    const auto repeated = std::ranges::find_if(file.tensors(), [&, plain = repeats](const auto& entry) {
      return plain_name(reading.layout, entry.first) == plain;  // perhaps with a prefix
    });
    if (repeated == file.tensors().end()) continue;
    const auto found = std::ranges::find_if(reading.names, [&, plain = name](const auto& n) {
      return plain_name(reading.layout, n.first) == plain;
    });
    if (found == reading.names.end()) continue;
    const Tensor a = file.read(repeated->first), b = file.read(found->second);
    if (a.type() != b.type() ||
        !std::equal(a.as<std::byte>(), a.as<std::byte>() + a.type().bytes(), b.as<std::byte>()))
      throw Error(fmt::format("'{}': '{}', {}, differs from '{}', {}; this model has one parameter for both",
                              file.path(), repeated->first, to_string(a.type()), found->second,
                              to_string(b.type())));
  }
}

// Limits the list: a bad file can have a hundred thousand unexpected names.
std::string listed(const WeightsReport& report) {
  constexpr std::size_t kListed = 10;
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
  Reading reading = best_reading(module, weights, options.convert);
  const std::string problems = listed(reading.report);
  if (!problems.empty() && !options.partial)
    throw WeightsMismatch(fmt::format("'{}' does not fit the model ({} of its {} tensors do):{}", file,
                                      reading.names.size(), reading.stored.size(), problems));
  check_ties(reading, weights);
  StateDict given;
  std::set<std::string> incomplete;
  for (const auto& [name, stored] : reading.stored) {
    const auto found = reading.names.find(name);
    if (found == reading.names.end())
      for (const StoredTensor::Piece& p : stored.pieces) incomplete.insert(p.path);
    else
      from_file(
          stored,
          converted(found->second, weights.read(found->second), stored.pieces[0].parameter.tensor.dtype()),
          given);
  }
  StateDict state;
  for (const auto& [path, p] : module.named_parameters()) {
    if (!incomplete.contains(path))
      state.emplace(path, from_torch(*p, given.at(path)));
    else if (!p->tensor.impl()->state.empty())
      state.emplace(path, p->tensor);
    else
      throw Error(fmt::format(
          "'{}' lacks '{}', and the model has no contents for it: initialize() it before a partial "
          "load",
          file, path));
  }
  if (incomplete.size() == state.size() && !state.empty())
    throw WeightsMismatch(fmt::format("'{}' has nothing that fits the model:{}", file, problems));
  return {std::move(state), std::move(reading.report)};
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

WeightsFit fit_of(ModuleBase& module, const SafetensorsFile& file) {
  const Reading reading = best_reading(module, file, true);
  const std::size_t fitting = reading.names.size();
  return {fitting, fitting + reading.report.mismatched.size(), reading.problems()};
}

void save_weights(ModuleBase& module, const std::string& file, const std::string& library) {
  const auto state = module.state();
  const auto tensors = torch_sources(module, state, 0, 0, 1, file_layout(module, library));
  replace_durably(Files::system(), file, [&](const Sink& sink) { write_safetensors(tensors, sink); });
}

}  // namespace tandem::nn
