#include "weights_commands.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/engine.h>
#include <tandem/nn/models/network_config.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/nn/safetensors.h>
#include <tandem/nn/torch_layout.h>
#include <tandem/nn/weights.h>
#include <tandem/ops/index.h>
#include <tandem/ops/index_check.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

#include "log.h"
#include "output_file.h"

namespace tandem::apps {
using namespace engine;
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights =
    "safetensors file, or a directory with model.safetensors; a config.json of transformers gives the sizes";

constexpr const char* kMore =
    "docs/parity.md says which names and layouts files have, what a batch holds, and how PyTorch computes the same.";

struct Loaded {
  nn::WholeNetwork network;
  nn::FileLayout layout;  // of the file
};

// The first lines of an error: the network that the file differs least from, if it takes more than half of
// its tensors, and the file differs more from `chosen`, which has this name. Without one, as for other sizes
// than the papers', the network that has most of its names.
// `chosen` in its paper's size is one of them if a config gave it other sizes.
std::string likeliest(const std::string& file, const std::string& purpose, const std::string& than,
                      nn::ModuleBase& chosen, bool has_config) {
  const nn::SafetensorsFile weights(file);
  const nn::WeightsFit given = nn::fit_of(chosen, weights);
  const std::size_t half = weights.tensors().size() / 2;
  std::size_t least = given.differences;
  nn::WeightsFit most;  // names, and of those with as many the fewest differences
  std::string fits, has_names;
  for (const std::string& p : nn::network_purposes())
    for (const std::string& name : nn::network_names(p)) {
      if (!has_config && p == purpose && name == than) continue;
      const nn::WholeNetwork network = nn::make_network(name, p, 1);  // one at a time: some have a gigabyte
      const nn::WeightsFit fit = nn::fit_of(*network.module, weights);
      if (fit.tensors > half && fit.differences < least) {
        least = fit.differences;
        fits = fmt::format("{} --for {}", name, p);
      }
      if (fit.names > std::max(half, given.names) &&
          std::pair(fit.names, most.differences) > std::pair(most.names, fit.differences)) {
        most = fit;
        has_names = fmt::format("{} --for {}", name, p);
      }
    }
  if (!fits.empty()) return fmt::format("The file fits this network better: {}\n", fits);
  if (has_names.empty()) return "";
  return fmt::format("The file has the names of this network, in other sizes: {}\n", has_names);
}

std::string weights_file(const NetworkWeights& o) {
  return fs::is_directory(o.weights) ? (fs::path(o.weights) / "model.safetensors").string() : o.weights;
}

// The config.json beside the weights. `sizes` are absent if there is none, or if it is not of transformers.
struct Config {
  std::string file;
  std::optional<JsonInput> sizes{};
};

Config config_of(const NetworkWeights& o) {
  const fs::path file = fs::path(o.weights) / "config.json";
  if (!fs::exists(file)) return {};
  const JsonInput config = read_config(file.string());
  if (!nn::is_of_transformers(config)) return {file.string()};
  return {file.string(), config};
}

// The last lines of an error.
std::string origin_of_sizes(const Config& config, nn::ModuleBase& module, const std::string& weights) {
  if (config.file.empty()) {
    const nn::SafetensorsFile file(weights);
    if (2 * nn::fit_of(module, file).names <= file.tensors().size()) return "";
    const bool takes_config = std::ranges::any_of(
        module.file_layouts(), [](const nn::FileLayout& layout) { return layout.library == "huggingface"; });
    return takes_config
               ? "\nThe sizes are the paper's, and the file has the names of this network: give its directory, with "
                 "model.safetensors and the config.json of transformers, if it has other sizes."
               : "\nThe sizes are the paper's: weights of another size, such as a head of other classes, cannot be "
                 "read.";
  }
  if (!config.sizes)
    return fmt::format(
        "\nThe sizes are the paper's: '{}' has no \"model_type\", so it is not of transformers.",
        config.file);
  std::string lines = fmt::format("\nThe sizes are those of '{}'.", config.file);
  if (nn::lacks_head(*config.sizes))
    lines +=
        " It is of a BertModel, which has no head: save a BertForPreTraining or a "
        "BertForSequenceClassification.";
  return lines;
}

// Errors about sizes name the file that has them.
nn::WholeNetwork network_of(const NetworkWeights& o, std::int64_t samples, const Config& config) try {
  return nn::make_network(o.network, purpose_of(o), samples, config.sizes);
} catch (const Error& e) {
  const std::string why = e.what();
  if (!config.sizes || why.find(config.file) != why.npos) throw;
  throw Error(fmt::format("'{}': {}", config.file, why));
}

Loaded load(const NetworkWeights& o, std::int64_t samples) {
  const std::string file = weights_file(o);
  if (std::error_code none; fs::is_directory(o.weights, none) && !fs::exists(file, none))
    throw Error(fmt::format(
        "'{}' has no model.safetensors: files of torch.save (.bin) and weights in several files are not read; save "
        "them as one file (save_pretrained with max_shard_size)",
        o.weights));
  const Config config = config_of(o);
  Loaded loaded{network_of(o, samples, config), {}};
  nn::ModuleBase& module = *loaded.network.module;
  try {
    loaded.layout = nn::file_layout(module, nn::load_weights(module, file).library);
  } catch (const nn::WeightsMismatch& e) {
    const std::string other = likeliest(file, purpose_of(o), o.network, module, config.sizes.has_value());
    const bool is_another = !other.empty() && config.file.empty();  // then the sizes do not matter
    throw Error(other + e.what() + (is_another ? "" : origin_of_sizes(config, module, file)));
  }
  module.eval();
  return loaded;
}

// Attention gives a text without words 0, other libraries give it the mean of its padding.
void require_words(const std::string& name, const Tensor& mask) {
  const std::vector<double> is_word = mask.values();
  const std::int64_t length = mask.shape().back();
  for (std::int64_t first = 0; first < std::ssize(is_word); first += length)
    if (std::ranges::count(is_word.begin() + first, is_word.begin() + first + length, 0) == length)
      throw Error(
          fmt::format("'{}' hides all {} of sample {}", name, counted(length, "word"), first / length));
}

// Checks labels, and the ids of several tables. Ids of one table are checked by the module that looks them
// up.
void require_in_range(const nn::NetworkInput& input, const Tensor& given) {
  const auto tables = static_cast<std::size_t>(std::ssize(input.counts));
  Shape places = given.shape();
  if (tables > 1 && given.size(1) != std::ssize(input.counts))
    throw Error(fmt::format("'{}' must be (N,{}), not {}", input.name, tables, to_string(given.type())));
  places.resize(std::min<std::size_t>(places.size(), 2));
  const std::int64_t at_each = given.elements() / element_count(places);
  const auto* values = given.as<std::int32_t>();
  for (std::int64_t i = 0; i < given.elements(); ++i) {
    const std::int64_t place = i / at_each, count = input.counts[static_cast<std::size_t>(place) % tables];
    if (values[i] != input.none && (values[i] < 0 || values[i] >= count))
      throw Error(fmt::format("'{}': index {}{} is outside the range 0 to {}", input.name, values[i],
                              place_in(places, place), count - 1));
  }
}

// A Tensor as the network takes it: images with their channels last, integers and truth values of its dtype.
Tensor as_input(const nn::NetworkInput& input, Tensor given) {
  const std::string type = to_string(given.type());  // in the file
  if (given.elements() == 0)
    throw Error(fmt::format("'{}' is empty: {}", input.name, to_string(given.type())));
  if (input.is_image) {
    const std::int64_t channels = input.type.shape[3];
    if (given.type().rank() != 4 || given.size(1) != channels)
      throw Error(
          fmt::format("'{}' must be (N,{},H,W), not {}", input.name, channels, to_string(given.type())));
    given = transpose(given, {0, 2, 3, 1});
  }
  const DType dtype = is_floating(input.type.dtype) ? nn::default_dtype() : input.type.dtype;
  if (is_floating(given.dtype()) && is_floating(dtype)) given = cast(given, dtype);
  if (!is_floating(given.dtype()) && !is_floating(dtype))
    given = dtype == DType::b8    ? not_equal(given, 0)
            : dtype == DType::i32 ? index32(given)
                                  : cast(given, dtype);
  if (given.type().rank() + 1 == input.type.rank() && input.type.shape.back() == 1) {  // (N) for (N,1)
    Shape shape = given.shape();
    shape.push_back(1);
    given = reshape(given, shape);
  }
  if (given.dtype() != dtype || given.type().rank() != input.type.rank())
    throw Error(fmt::format("'{}' must be {} with {}, not {}", input.name,
                            dtype == DType::i32  ? "integers"
                            : dtype == DType::b8 ? "integers or bool"
                                                 : name_of(dtype),
                            input.type.rank() == 1 ? "1 axis" : fmt::format("{} axes", input.type.rank()),
                            type));
  if (dtype == DType::b8) require_words(input.name, given);
  if (input.none || input.counts.size() > 1) require_in_range(input, given);
  return given;
}

// The named Tensors of the batch; undefined if an optional one is absent.
Tensors taken(StateDict& batch, const std::vector<nn::NetworkInput>& wanted, const std::string& file) {
  Tensors tensors;
  for (const nn::NetworkInput& input : wanted) {
    const auto found = batch.find(input.name);
    if (found == batch.end()) {
      if (!input.optional) throw Error(fmt::format("'{}' has no '{}'", file, input.name));
      tensors.emplace_back();
      continue;
    }
    try {
      tensors.push_back(as_input(input, found->second));
    } catch (const Error& e) {
      throw Error(fmt::format("'{}': {}", file, e.what()));
    }
    batch.erase(found);
  }
  return tensors;
}

// A batch has one number of samples.
void require_alike(const std::vector<nn::NetworkInput>& inputs, const Tensors& given,
                   const std::vector<nn::NetworkInput>& labels, const Tensors& of_labels) {
  const auto require = [&](const nn::NetworkInput& input, const Tensor& t) {
    if (t && t.size(0) != given[0].size(0))
      throw Error(fmt::format("'{}' has {}, and '{}' {}", inputs[0].name, counted(given[0].size(0), "sample"),
                              input.name, t.size(0)));
  };
  for (std::size_t i = 0; i < given.size(); ++i) require(inputs[i], given[i]);
  for (std::size_t i = 0; i < of_labels.size(); ++i) require(labels[i], of_labels[i]);
}

void require_names(const StateDict& left, const nn::WholeNetwork& network, const ForwardOptions& o) {
  if (left.empty()) return;
  std::vector<std::string> known;
  for (const auto* list : {&network.inputs, &network.labels})
    for (const nn::NetworkInput& input : *list) known.push_back(input.name);
  throw Error(fmt::format("'{}' has '{}', which {} does not take; it takes {}", o.batch, left.begin()->first,
                          o.network, fmt::join(known, ", ")));
}

}  // namespace

void add_forward_options(CLI::App& command, ForwardOptions& o) {
  add_network_options(command, o);
  command.add_option("--weights", o.weights, kWeights)->required();
  command
      .add_option("--batch", o.batch,
                  "safetensors file with images (N,C,H,W), or input_ids, attention_mask and token_type_ids, "
                  "or dense and categories; and labels, for the loss")
      ->required();
  command
      .add_option("--output", o.output, "write logits, and with labels the loss, to this safetensors file")
      ->required();
  command.add_option("--dtype", o.dtype, "type of weights and arithmetic")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  command.add_flag("--gradients", o.gradients,
                   "also write grad.NAME for each parameter, named and stored as in the weights");
  command.footer(kMore);
}

void forward(const ForwardOptions& o) {
  const std::string output = replaceable("--output", o.output, "results", {o.batch, weights_file(o)});
  const nn::DtypeScope dtype(o.dtype == "f64" ? DType::f64 : DType::f32);
  StateDict batch = nn::SafetensorsFile(o.batch).read_all();
  Loaded loaded = load(o, 1);
  const nn::WholeNetwork& network = loaded.network;
  const bool has_labels = std::ranges::any_of(
      network.labels, [&](const nn::NetworkInput& label) { return batch.contains(label.name); });
  if (o.gradients && !has_labels)
    throw Error(
        fmt::format("--gradients are those of the loss: '{}' has no '{}'", o.batch, network.labels[0].name));
  const Tensors inputs = taken(batch, network.inputs, o.batch),
                labels = has_labels ? taken(batch, network.labels, o.batch) : Tensors{};
  require_names(batch, network, o);
  require_alike(network.inputs, inputs, network.labels, labels);

  StateDict results;
  const Tensors outputs = network.forward(inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) results[network.outputs[i]] = detach(outputs[i]);
  if (has_labels) {
    const Tensor loss = network.loss(outputs, labels);
    results["loss"] = detach(loss);
    fmt::print("loss {:.8g}\n", loss.item());
    if (o.gradients) {
      loss.backward();
      for (const auto& [name, stored] : nn::stored_tensors(*network.module, loaded.layout)) {
        if (stored.pieces[0].parameter.buffer) continue;
        results["grad." + name] = nn::to_file(stored, [&](const std::string& path) {
          for (const auto& [p, parameter] : network.module->named_parameters())
            if (p == path) {
              const Tensor grad = parameter->tensor.grad();
              return grad ? grad : Tensor::zeros(parameter->tensor.type());
            }
          throw Error(fmt::format("no parameter '{}'", path));
        });
      }
    }
  }
  require_replaceable("--output", output, "results");  // a file may have come meanwhile
  replace_durably(Files::system(), output, [&](const Sink& sink) {
    nn::write_safetensors(results, sink, {{"holds", "results"}});
  });
}

void add_convert_options(CLI::App& command, ConvertOptions& o) {
  add_network_options(command, o);
  command.add_option("in", o.weights, kWeights)->required();
  command.add_option("out", o.output, "safetensors file to write")->required();
  command.add_option(
      "--names", o.names,
      "the library whose names and layouts to write: torchvision, timm, huggingface, or torch, of which a network has "
      "some; without it, Tandem's own");
  command.footer(kMore);
}

void convert_weights(const ConvertOptions& o) {
  const std::string output = replaceable("out", o.output, "weights", {weights_file(o)});
  nn::file_layout(*make(o, 1).module, o.names);  // throws
  const Loaded loaded = load(o, 1);
  require_replaceable("out", output, "weights");  // a file may have come meanwhile
  nn::save_weights(*loaded.network.module, output, o.names);
}

}  // namespace tandem::apps
