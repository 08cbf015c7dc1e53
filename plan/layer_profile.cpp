#include <tandem/plan/layer_profile.h>

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>
#include <tandem/core/base/units.h>

namespace tandem::engine {
namespace {

constexpr double kLeastMs = 1e-6, kMostMs = 1e10, kMostBytes = 1e12;
constexpr std::size_t kMostLayers = 10'000;

PipelineLayer layer_of(const JsonInput& j) {
  j.require_keys({"name", "forward_ms", "backward_ms", "activation_bytes", "resident_bytes", "weight_bytes",
                  "gradient_bytes", "shared_bytes"});
  const auto seconds = [&](const char* key) {
    return j[key].required().number(0, kLeastMs, kMostMs) / kMsPerSecond;
  };
  const auto bytes = [&](const char* key) { return j[key].required().number(0, 0, kMostBytes); };
  const double crossing = bytes("activation_bytes");
  return {j["name"].required().text(),
          seconds("forward_ms"),
          seconds("backward_ms"),
          crossing,
          crossing,
          bytes("resident_bytes"),
          bytes("weight_bytes"),
          j["gradient_bytes"].number(0, 0, kMostBytes),
          j["shared_bytes"].number(0, 0, kMostBytes)};
}

}  // namespace

std::string layer_profile_json(const std::vector<PipelineLayer>& layers) {
  std::vector<std::string> texts;
  for (const PipelineLayer& layer : layers)
    texts.push_back(
        nlohmann::ordered_json{{"name", layer.name},
                               {"forward_ms", std::max(kLeastMs, layer.forward * kMsPerSecond)},
                               {"backward_ms", std::max(kLeastMs, layer.backward * kMsPerSecond)},
                               {"activation_bytes", std::max(layer.forward_bytes, layer.backward_bytes)},
                               {"resident_bytes", layer.resident_bytes},
                               {"weight_bytes", layer.weight_bytes},
                               {"gradient_bytes", layer.gradient_bytes},
                               {"shared_bytes", layer.shared_bytes}}
            .dump());
  return fmt::format("{{\"layers\": [\n{}]}}\n", fmt::join(texts, ",\n"));
}

std::vector<PipelineLayer> read_layer_profile(const std::string& file) {
  const std::string what = fmt::format("profile '{}'", file);
  const JsonInput j = JsonInput::parse(what, read_text("profile", file));
  if (j["stages"].present() && !j["layers"].present())
    throw Error(fmt::format(
        "{} is of stages, which 'tandem sim pipeline' simulates: here it must be of layers", what));
  j.require_keys({"layers"});
  std::vector<PipelineLayer> layers;
  std::set<std::string> names;
  for (const JsonInput& layer : j["layers"].required().items()) {
    layers.push_back(layer_of(layer));
    const std::string& name = layers.back().name;
    if (name.empty() || std::ranges::any_of(name, [](unsigned char c) { return c < ' ' || c == 127; }))
      throw Error(fmt::format(
          "{}: the name of layer {} is empty or has control characters: a cut could not be printed", what,
          layers.size() - 1));
    if (!names.insert(name).second)
      throw Error(
          fmt::format("{}: \"layers\" has two layers '{}': a cut could not name one of them", what, name));
  }
  if (layers.empty() || layers.size() > kMostLayers)
    throw Error(
        fmt::format("{}: \"layers\" has {}; there must be 1 to {}", what, layers.size(), kMostLayers));
  return layers;
}

}  // namespace tandem::engine
