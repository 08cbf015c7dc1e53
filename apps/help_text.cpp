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
  // CLI11 shows checks beside the type, a list's default in brackets, and "..." behind it.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return Formatter::make_option_opts(option);
    std::string type = option->get_type_name(), value = option->get_default_str();
    if (const auto check = type.find(':'); check != type.npos)  // a set of values says more than their type
      type = type.substr(check + 1, 1) == "{" ? type.substr(check + 1) : type.substr(0, check);
    if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);
    const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    return (type.empty() ? "" : " " + type) + (is_list && !type.ends_with("...") ? ",..." : "") +
           (value.empty() ? "" : "=" + value) + (option->get_required() ? " REQUIRED" : "");
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
