#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/base/json_input.h>
#include <tandem/core/graph/graph.h>
#include <tandem/nn/models/dlrm.h>
#include <tandem/nn/module.h>

namespace tandem::nn {

/// A Tensor that a network takes. Ids, masks and labels have the names that they have in transformers.
struct NetworkInput {
  std::string name;
  TensorType type;
  /// Of integers: each is from 0 to below this. If there are several, the second axis has as many places.
  std::vector<std::int64_t> counts{};
  std::optional<std::int32_t> none{};  ///< of labels: this one, too, which does not count
  bool optional = false;
  bool is_image = false;  ///< (N,H,W,C), and (N,C,H,W) in files
};

/// A network in the size of its paper, and what it takes and gives.
struct WholeNetwork {
  std::unique_ptr<ModuleBase> module;  ///< not yet initialized
  std::vector<NetworkInput> inputs;    ///< images are (N,H,W,C)
  std::function<Tensors(const Tensors& inputs)> forward;
  std::vector<std::string> outputs;  ///< their names; the first is "logits"
  std::vector<NetworkInput> labels;
  /// The loss of its paper, as the original computes it: a scalar.
  std::function<Tensor(const Tensors& outputs, const Tensors& labels)> loss;
};

/// What whole networks are for: "cifar" (images of 32×32×3), "imagenet" (224×224×3 or 299×299×3), "text" (ids
/// of words), "clicks" (numbers and categories).
std::vector<std::string> network_purposes();
/// Returns the names of the networks for a purpose. Throws Error listing the purposes if there is none such.
std::vector<std::string> network_names(const std::string& purpose);
/// Returns the only purpose of a network. Throws Error listing the purposes if it has several, or the names
/// of all networks if there is none such.
std::string purpose_of(const std::string& name);
/// Makes a network for a purpose; inputs and labels are of so many samples. With a `config`, the config.json
/// of transformers, it has the sizes in there. Throws Error listing the names if there is none, and Error if
/// a network has no config or its values do not fit.
WholeNetwork make_network(const std::string& name, const std::string& purpose, std::int64_t samples,
                          const std::optional<engine::JsonInput>& config = {});

/// Returns a network of texts for texts of `length` words: its ids, masks, and labels of words. Its
/// weights do not depend on the length; its forward throws Error if it has no such positions.
WholeNetwork with_text_length(WholeNetwork network, std::int64_t length);

/// Makes the network of clicks in another size than its paper's.
WholeNetwork dlrm_network(const DlrmOptions& options, std::int64_t samples);

/// Gives all parameters and buffers the value 0, for graphs in which values do not matter.
void fill_with_zeros(ModuleBase& module);

/// Returns the graph of a network with its loss, which is what `build` takes.
engine::Graph traced_loss(const WholeNetwork& network);

}  // namespace tandem::nn
