#include "layers_command.h"

#include <fmt/format.h>

#include <tandem/nn/models/whole_networks.h>
#include <tandem/pipeline/stages.h>
#include <tandem/plan/layer_profile.h>
#include <tandem/plan/network_layers.h>

namespace tandem::apps {
using namespace engine;

void add_layers_options(CLI::App& command, LayersOptions& o) {
  add_network_options(command, o);
  command.add_option("--config", o.config, "file with its sizes: the config.json of transformers");
  command.add_option("-b,--batch-size", o.samples, "samples of a batch")->check(CLI::Range(1, 1'000'000));
  command.add_option("--gflops", o.gflops, "GFLOP/s of the device")->check(CLI::Range(1e-3, 1e9));
  command.add_option("--gigabytes", o.gigabytes, "GB/s of its memory")->check(CLI::Range(1e-3, 1e9));
}

void print_layers(const LayersOptions& o) {
  const nn::WholeNetwork network = make(o, o.samples, o.config);
  nn::fill_with_zeros(*network.module);
  const Graph forward = nn::traced_loss(network);
  const DeviceSpeed speed{o.gflops * 1e9, o.gigabytes * 1e9};
  fmt::print("{}",
             layer_profile_json(partition_problem(forward, possible_cuts(forward, 1), {}, speed).layers));
}

}  // namespace tandem::apps
