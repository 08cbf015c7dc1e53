#include "network_choice.h"

#include <optional>

#include <fmt/format.h>

namespace tandem::apps {
using namespace engine;

void add_network_options(CLI::App& command, NetworkChoice& choice) {
  command.add_option("network", choice.network, "a network of tandem summary")->required();
  command
      .add_option("--for", choice.purpose, "what it is trained on; needed by networks with several purposes")
      ->check(CLI::IsMember(nn::network_purposes()));
}

std::string purpose_of(const NetworkChoice& choice) {
  return choice.purpose.empty() ? nn::purpose_of(choice.network) : choice.purpose;
}

JsonInput read_config(const std::string& file) {
  return JsonInput::parse(fmt::format("configuration '{}'", file), read_text("configuration", file));
}

nn::WholeNetwork make(const NetworkChoice& choice, std::int64_t samples, const std::string& config) {
  std::optional<JsonInput> sizes;
  if (!config.empty()) sizes = read_config(config);
  return nn::make_network(choice.network, purpose_of(choice), samples, sizes);
}

}  // namespace tandem::apps
