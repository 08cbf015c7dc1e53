#include "config_file.h"

#include <memory>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>

#include "command_line.h"
#include "config_text.h"

namespace tandem::apps {
namespace {

class ConfigFile final : public CLI::Config {
 public:
  explicit ConfigFile(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override {
    std::vector<CLI::ConfigItem> items;
    try {
      for (const ConfigLine& line : parse_config(read(in))) items.push_back(item(line));
    } catch (const Error& e) {
      throw Error(fmt::format("--config '{}': {}", app_.get_config_ptr()->as<std::string>(), e.what()));
    }
    return items;
  }

  // What was given, here or in a file.
  std::string to_config(const CLI::App* app, bool, bool, std::string) const override {
    std::string text;
    for (const CLI::Option* o : app->get_options()) {
      if (o->count() == 0 || !o->get_configurable() || o->get_lnames().empty()) continue;
      if (o->get_lnames()[0] == "resume")
        continue;  // how this run began, which another from its flags need not
      const std::string value = fmt::format("{}", fmt::join(o->reduced_results(), ","));
      const std::string type = o->get_type_name();
      const bool bare = o->get_expected_max() == 0 || type == "INT" || type == "UINT" || type == "FLOAT";
      text += fmt::format("{} = {}\n", o->get_lnames()[0], bare ? value : config_string(value));
    }
    return text;
  }

 private:
  // All of it: what has no end, as a device, is no configuration.
  static std::string read(std::istream& in) {
    constexpr std::size_t kMost = 1 << 20;
    std::string text(kMost + 1, '\0');
    in.read(text.data(), std::ssize(text));
    text.resize(static_cast<std::size_t>(in.gcount()));
    if (in.bad()) throw Error("it cannot be read");
    if (text.size() > kMost) throw Error(fmt::format("more than {} bytes; it is no file of flags", kMost));
    return text;
  }

  CLI::ConfigItem item(const ConfigLine& line) const {
    const std::string flag = "--" + line.name;
    const CLI::Option* option = app_.get_option_no_throw(flag);
    if (!option) {
      const std::vector<std::string> near = similar_flags(app_, flag);
      throw Error(fmt::format("unknown key '{}'{}; keys are the flags of {} --help", line.name,
                              near.empty() ? "" : fmt::format(", perhaps {}", fmt::join(near, " or ")),
                              app_.get_name()));
    }
    if (!option->get_configurable())
      throw Error(fmt::format("'{}' is for the command line alone", line.name));
    const bool is_flag = option->get_expected_max() == 0;
    if (is_flag && (line.values.size() != 1 || (line.values[0] != "true" && line.values[0] != "false")))
      throw Error(fmt::format("'{}' is true or false, not '{}'", line.name, fmt::join(line.values, ",")));
    CLI::ConfigItem result;
    result.name = line.name;
    // A list is what it is on the command line: 0.1,0.05.
    result.inputs = {fmt::format("{}", fmt::join(line.values, ","))};
    const bool may_stand_alone = option->get_expected_min() == 0 && option->get_expected_max() > 0;
    if (may_stand_alone && !line.quoted && line.values[0] == "true") result.inputs = {""};
    return result;
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
