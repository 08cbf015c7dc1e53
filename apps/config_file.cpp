#include "config_file.h"

#include <memory>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/error.h>

#include "command_line.h"

namespace tandem::apps {
namespace {

class ConfigFile final : public CLI::ConfigTOML {
 public:
  explicit ConfigFile(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override {
    std::istringstream text(read(in));
    auto items = CLI::ConfigTOML::from_config(text);
    for (CLI::ConfigItem& item : items) {
      check(item);
      // A list is what it is on the command line: 0.1,0.05.
      if (item.inputs.size() > 1) item.inputs = {fmt::format("{}", fmt::join(item.inputs, ","))};
    }
    return items;
  }

 private:
  std::string file() const { return app_.get_config_ptr()->as<std::string>(); }

  // All of it: what has no end, as a device, is no configuration.
  std::string read(std::istream& in) const {
    constexpr std::size_t kMost = 1 << 20;
    std::string text(kMost + 1, '\0');
    in.read(text.data(), std::ssize(text));
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMost)
      throw Error(fmt::format("--config '{}': more than {} bytes; it is no file of flags", file(), kMost));
    return text;
  }

  void check(const CLI::ConfigItem& item) const {
    const std::string file = this->file();
    if (!item.parents.empty())
      throw Error(fmt::format("--config '{}': '{}': there are no sections; write flag = value", file,
                              fmt::join(item.parents, ".")));
    const std::string flag = "--" + item.name;
    const CLI::Option* option = app_.get_option_no_throw(flag);
    if (!option) {
      const std::vector<std::string> near = similar_flags(app_, flag);
      throw Error(fmt::format(
          "--config '{}': unknown key '{}'{}; keys are the flags of {} --help", file, item.name,
          near.empty() ? "" : fmt::format(", perhaps {}", fmt::join(near, " or ")), app_.get_name()));
    }
    if (!option->get_configurable())
      throw Error(fmt::format("--config '{}': '{}' is for the command line alone", file, item.name));
  }

  const CLI::App& app_;
};

}  // namespace

void add_config(CLI::App& app) {
  app.set_config("--config", "",
                 "TOML or INI file of flag = value, without the dashes; flags given here come before it.\n"
                 "--output's config.toml is one")
      ->group("Options");
  app.config_formatter(std::make_shared<ConfigFile>(app));
}

std::string to_config(const CLI::App& app) { return app.config_to_str(); }

}  // namespace tandem::apps
