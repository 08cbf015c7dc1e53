#include "layers_command.h"

#include <optional>

#include <fmt/format.h>

#include <tandem/core/base/json_input.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/pipeline/stages.h>
#include <tandem/plan/layer_profile.h>
#include <tandem/plan/network_layers.h>

namespace tandem::apps {
using namespace engine;

void add_layers_options(CLI::App& command, LayersOptions& o) {
  command.add_option("network", o.network, "as tandem summary lists them")->required();
  command.add_option("--for", o.purpose, "what it is trained on; needed by networks with several purposes")
      ->check(CLI::IsMember(nn::network_purposes()));
  command.add_option("--config", o.config, "file with its sizes: the config.json of transformers");
  command.add_option("-b,--batch-size", o.samples, "samples of a batch")->check(CLI::Range(1, 1'000'000));
  command.add_option("--gflops", o.gflops, "GFLOP/s of the device")->check(CLI::Range(1e-3, 1e9));
  command.add_option("--gigabytes", o.gigabytes, "GB/s of its memory")->check(CLI::Range(1e-3, 1e9));
}

void print_layers(const LayersOptions& o) {
  std::optional<JsonInput> config;
  if (!o.config.empty())
    config =
        JsonInput::parse(fmt::format("configuration '{}'", o.config), read_text("configuration", o.config));
  const std::string purpose = o.purpose.empty() ? nn::purpose_of(o.network) : o.purpose;
  const nn::WholeNetwork network = nn::make_network(o.network, purpose, o.samples, config);
  nn::fill_with_zeros(*network.module);
  const Graph forward = nn::traced_loss(network);
  const DeviceSpeed speed{o.gflops * 1e9, o.gigabytes * 1e9};
  fmt::print("{}",
             layer_profile_json(partition_problem(forward, possible_cuts(forward, 1), {}, speed).layers));
}

}  // namespace tandem::apps
