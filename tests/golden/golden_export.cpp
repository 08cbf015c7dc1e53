// golden_export DIRECTORY: writes for every golden network a folder with its initial weights and its batches,
// and cases.json, which describes them. tests/golden/make_networks.py calls it.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>

#include <tandem/core/base/files.h>
#include <tandem/nn/safetensors.h>
#include <tandem/nn/weights.h>

#include "golden_networks.h"

namespace tandem::testing {
using namespace engine;
namespace {

nlohmann::json to_json(const Optimizer& optimizer, double rate) {
  if (const auto* o = std::get_if<SgdOptions>(&optimizer))
    return {{"kind", "SGD"},
            {"options",
             {{"lr", rate},
              {"momentum", o->momentum},
              {"weight_decay", o->weight_decay},
              {"nesterov", o->nesterov}}}};
  const auto& o = std::get<AdamOptions>(optimizer);
  return {
      {"kind", o.decoupled ? "AdamW" : "Adam"},
      {"options",
       {{"lr", rate}, {"betas", {o.beta1, o.beta2}}, {"eps", o.epsilon}, {"weight_decay", o.weight_decay}}}};
}

void write_case(const GoldenNetwork& golden, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  nn::set_default_dtype(golden.job.dtype);
  const auto model = golden.job.model();
  model->initialize(golden.job.seeds[0]);
  nn::save_weights(*model, folder / "weights.safetensors");
  StateDict batches;
  for (std::int64_t b = 0; b < kGoldenSteps; ++b) {
    batches["images." + std::to_string(b)] = images_of(golden.job, b);
    batches["labels." + std::to_string(b)] = labels_of(golden.job, b);
  }
  replace_durably(Files::system(), folder / "batches.safetensors",
                  [&](const Sink& sink) { nn::write_safetensors(batches, sink); });
}

void write_all(const std::filesystem::path& directory) {
  nlohmann::json cases;
  for (const GoldenNetwork& golden : golden_networks()) {
    write_case(golden, directory / std::to_string(cases.size()));
    cases.push_back({{"name", golden.name},
                     {"network", golden.network},
                     {"arguments", golden.arguments},
                     {"steps", kGoldenSteps},
                     {"optimizer", to_json(golden.optimizer, golden.job.rates[0])}});
  }
  std::ofstream(directory / "cases.json") << cases;
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: golden_export DIRECTORY\n", stderr);
    return 1;
  }
  try {
    tandem::testing::write_all(argv[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "golden_export: %s\n", e.what());
    return 1;
  }
}
