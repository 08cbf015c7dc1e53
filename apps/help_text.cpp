#include "help_text.h"

#include <algorithm>
#include <memory>
#include <sstream>

namespace tandem::apps {
namespace {

class HelpText final : public CLI::Formatter {
  // CLI11 shows of a flag that turns another off that it is false.
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = Formatter::make_option_name(option, positional);
    const std::string value = "{false}";
    if (const auto at = name.find(value); at != std::string::npos) name.erase(at, value.size());
    return name;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(Formatter::make_option_desc(option), beside_names());
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_display_name(true),
                             wrapped(command->get_description(), beside_names()), column_width_);
    return out.str();
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(Formatter::make_description(app), kHelpColumns);
  }
  std::string make_footer(const CLI::App* app) const override {
    return wrapped(Formatter::make_footer(app), kHelpColumns);
  }
  std::size_t beside_names() const { return kHelpColumns - column_width_; }
};

}  // namespace

std::string wrapped(const std::string& text, std::size_t width) {
  std::string result;
  std::istringstream lines(text);
  bool is_first = true;
  for (std::string line; std::getline(lines, line); is_first = false) {
    if (!is_first) result += '\n';
    const std::string indent(std::min(line.find_first_not_of(' '), line.size()), ' ');
    result += indent;
    std::size_t column = indent.size();
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const bool begins = column == indent.size(), fits = column + 1 + word.size() <= width;
      if (!begins) result += fits ? " " : "\n" + indent;
      column = (begins ? column : fits ? column + 1 : indent.size()) + word.size();
      result += word;
    }
  }
  return text.ends_with('\n') ? result + '\n' : result;
}

void set_help_text(CLI::App& app) {
  app.formatter(std::make_shared<HelpText>());
  for (CLI::App* command : app.get_subcommands({})) set_help_text(*command);
}

}  // namespace tandem::apps
