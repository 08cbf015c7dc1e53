#include "command_line.h"

#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

#include "decimal.h"
#include "help_text.h"
#include "log.h"
#include "standard_output.h"
#include "toml_text.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr const char* kEmptyValue = "an empty value; leave the option out, or give it one";

// Returns how many letters must be inserted, dropped or replaced to turn a into b (Levenshtein 1966).
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j)
      diagonal =
          std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row.back();
}

// What other programs call a flag.
constexpr std::pair<std::string_view, const char*> kOtherNames[] = {
    {"--learning-rate", "--lr"}, {"--weight-decay", "--wd"},    {"--optimizer", "--opt"},
    {"--model", "--arch"},       {"--network", "--arch"},       {"--dataset", "--data"},
    {"--scheduler", "--sched"},  {"--lr-scheduler", "--sched"}, {"--clip-norm", "--clip-grad"}};

// ", perhaps --epochs": the long flags that differ from `flag` by at most two letters, begin with it, or end
// it, as --num-workers; or that are called so elsewhere.
std::string perhaps(const CLI::App& app, const std::string& flag) {
  std::vector<std::string> found;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (const std::string known = "--" + name; edits(flag, known) <= 2 ||
                                                 (flag.size() > 3 && known.starts_with(flag)) ||
                                                 flag.ends_with("-" + name))
        found.push_back(known);
  for (const auto& [other, known] : kOtherNames)
    if (flag == other && app.get_option_no_throw(known)) found.push_back(known);
  return found.empty() ? "" : fmt::format(", perhaps {}", fmt::join(found, " or "));
}

struct TypedCommand {
  const CLI::App* app;
  std::string words;  // "tandem sim pipeline"
};

TypedCommand typed_command(const CLI::App& app, int argc, char** argv) {
  TypedCommand typed{&app, app.get_name()};
  for (int i = 1; i < argc; ++i) {
    const auto commands =
        typed.app->get_subcommands([&](const CLI::App* c) { return c->get_name() == argv[i]; });
    if (commands.empty()) break;
    typed.app = commands.front();
    typed.words += " " + typed.app->get_name();
  }
  return typed;
}

std::string unexpected(const CLI::App& app, const TypedCommand& typed) {
  const std::string help = typed.words + " --help";
  const std::vector<std::string> rest = app.remaining(true);
  const auto flag = std::ranges::find_if(rest, [](const std::string& r) { return r.starts_with("-"); });
  if (flag == rest.end())
    return fmt::format("'{}' is not expected; {} lists what is", fmt::join(rest, " "), help);
  return fmt::format("unknown flag '{}'{}; all are listed by {}", *flag,
                     perhaps(*typed.app, flag->substr(0, flag->find('='))), help);
}

// Checks every value before CLI11 converts it.
std::string checked(const std::string& type, const std::string& text) {
  if (text.empty()) throw CLI::ValidationError(kEmptyValue);
  if (type == "INT") return std::to_string(decimal<std::int64_t>(text));
  if (type == "UINT") return std::to_string(decimal<std::uint64_t>(text));
  if (type == "FLOAT") decimal<double>(text);
  return text;
}

// If the value of an option is optional, CLI11 takes an empty value for a missing one.
void refuse_empty_values(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], before = argv[i - 1];
    if (word.starts_with("--") && word.ends_with("="))
      throw Error(fmt::format("{}: {}", word.substr(0, word.size() - 1), kEmptyValue));
    if (word.empty() && before.starts_with("--")) throw Error(fmt::format("{}: {}", before, kEmptyValue));
  }
}

void check_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_max() > 0)  // not a flag
      option->transform(
          [type = option->get_type_name()](const std::string& text) { return checked(type, text); });
  for (CLI::App* command : app.get_subcommands({})) check_values(*command);
}

// The commands of each command that does nothing without one.
void require_known_commands(const CLI::App& app, int argc, char** argv) {
  std::string typed = app.get_name();
  const CLI::App* at = &app;
  for (int i = 1; i < argc || at->get_require_subcommand_min() > 0; ++i) {
    std::vector<std::string> known;
    for (const CLI::App* command : at->get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(command->get_name());
    const std::string word = i < argc ? argv[i] : "";
    const bool needs_one = at->get_require_subcommand_min() > 0;
    const bool is_flag = word.starts_with("-");
    if (known.empty() || (!needs_one && !contains(known, word)) || word == "-h" || word == "--help" ||
        word == "--version")
      return;
    const std::string all = fmt::format("{}", fmt::join(known, ", "));
    if (word.empty() || is_flag)
      throw Error(fmt::format("{} needs a command{}: {}; see {} --help", typed,
                              is_flag ? fmt::format(" before '{}'", word) : "", all, typed));
    if (!contains(known, word))
      throw Error(fmt::format("unknown command '{}'; those of {} are: {}", word, typed, all));
    at = at->get_subcommand(word);
    typed += " " + word;
  }
}

// CLI11 takes a flag that follows another for its value.
void refuse_flags_as_values(const CLI::App& app, int argc, char** argv) {
  const TypedCommand typed = typed_command(app, argc, argv);
  const auto option = [&](const std::string& word) {
    return word.starts_with("-") ? typed.app->get_option_no_throw(word) : nullptr;
  };
  for (int i = 2; i < argc; ++i)
    if (const CLI::Option* before = option(argv[i - 1]);
        before && before->get_expected_min() > 0 && option(argv[i]))
      throw Error(fmt::format("{} needs a value; see {} --help", argv[i - 1], typed.words));
}

class ConfigFile final : public CLI::Config {
 public:
  explicit ConfigFile(const CLI::App& app) : app_(app) {}

  // Reads the file, unless it was read, and returns the one that CLI11 shall open instead: CLI11 would wait
  // for a pipe's first writer, and read an endless file such as /dev/zero.
  std::string take(const std::string& file) {
    if (file_.empty()) text_ = read_text("--config", file_ = file, 1 << 20);
    return "/dev/null";
  }
  const std::string& file() const { return file_; }

  std::vector<CLI::ConfigItem> from_config(std::istream&) const override {
    std::vector<CLI::ConfigItem> items;
    try {
      for (const TomlEntry& entry : read_toml(text_)) items.push_back(item(entry));
    } catch (const Error& e) {
      throw Error(fmt::format("--config '{}': {}", file_, e.what()));
    }
    return items;
  }
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }  // not used

 private:
  CLI::ConfigItem item(const TomlEntry& entry) const {
    const std::string flag = "--" + entry.key, value = fmt::format("{}", fmt::join(entry.values, ","));
    const CLI::Option* option = app_.get_option_no_throw(flag);
    if (!option)
      throw Error(fmt::format("line {}: unknown key '{}'{}; keys are the flags of {} --help", entry.line,
                              entry.key, perhaps(app_, flag), app_.get_name()));
    if (!option->get_configurable())
      throw Error(fmt::format("line {}: '{}' is only for the command line", entry.line, entry.key));
    const bool is_switch = option->get_expected_max() == 0, may_stand_alone = option->get_expected_min() == 0;
    if (is_switch && value != "true" && value != "false")
      throw Error(fmt::format("line {}: '{}' is true or false, not '{}'", entry.line, entry.key, value));
    CLI::ConfigItem result;
    result.name = entry.key;
    result.inputs = {value};  // a list as on the command line: 0.1,0.05
    if (!is_switch && may_stand_alone && !entry.quoted && value == "true") result.inputs = {""};
    return result;
  }

  const CLI::App& app_;
  std::string file_, text_;
};

}  // namespace

void add_config(CLI::App& app) {
  const auto config = std::make_shared<ConfigFile>(app);
  app.set_config("--config", "",
                 "TOML file with lines flag = value, without the flags' dashes; flags on the command line "
                 "override it. --output writes such a file, config.toml")
      ->group("Options")
      ->transform([config](const std::string& file) { return config->take(file); });
  app.config_formatter(config);
}

namespace {

// Returns the bytes that OpenMP's variable gives the stacks of its threads, or nothing if it is not set: a
// number with B, K, M or G; K without a letter.
std::optional<double> omp_stack_bytes(const char* variable) {
  const char* text = std::getenv(variable);
  double number = 0;
  if (!text) return std::nullopt;
  const auto skip_spaces = [](const char* at) { return at + std::strspn(at, " \t"); };
  text = skip_spaces(text);
  const auto [after, error] = std::from_chars(text, text + std::strlen(text), number);
  if (error != std::errc{}) return std::nullopt;
  const char unit = *skip_spaces(after);
  switch (unit == '\0' ? 'k' : std::tolower(unit)) {
    case 'b': return number;
    case 'm': return number * (1 << 20);
    case 'g': return number * (1 << 30);
    default: return number * (1 << 10);
  }
}

// A thread whose stack overflows ends the process without a word.
void require_stacks() {
  constexpr double kLeast = 256 << 10;
  const auto require = [](double bytes, const std::string& what) {
    if (bytes < kLeast)
      throw Error(fmt::format("{} gives threads stacks of {:.0f} KiB; give them {:.0f} KiB or more", what,
                              bytes / 1024, kLeast / 1024));
  };
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    require(static_cast<double>(limit.rlim_cur), "the stack limit (ulimit -s)");
  for (const char* variable : {"OMP_STACKSIZE", "GOMP_STACKSIZE"})
    if (const auto bytes = omp_stack_bytes(variable)) require(*bytes, variable);
}

// Files of JSON and TOML hold the arguments, and terminals show them.
void require_utf8(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) try {
      nlohmann::json(argv[i]).dump();
    } catch (const nlohmann::json::type_error&) {
      const bool follows_flag = i > 1 && argv[i - 1][0] == '-' && argv[i][0] != '-';
      std::string shown;
      for (const unsigned char c : std::string(argv[i]))
        shown += c >= ' ' && c < 127 ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
      throw Error(fmt::format("{}'{}' is not UTF-8, the only encoding that files of JSON and TOML can hold",
                              follows_flag ? std::string(argv[i - 1]) + " " : "", shown));
    }
}

}  // namespace

bool parse_command_line(CLI::App& app, int argc, char** argv) {
  require_utf8(argc, argv);
  require_stacks();
  set_help_text(app);
  app.set_version_flag("--version", fmt::format("{} {}", app.get_name(), TANDEM_VERSION))->group("Options");
  check_values(app);
  require_known_commands(app, argc, argv);
  refuse_empty_values(argc, argv);
  refuse_flags_as_values(app, argc, argv);
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& e) {
    app.exit(e);
    return false;
  } catch (const CLI::ExtrasError&) {
    throw Error(unexpected(app, typed_command(app, argc, argv)));
  } catch (const CLI::ConversionError& e) {  // a number is too large for its type, or a switch's value is bad
    throw Error(fmt::format("{}; a switch is true or false, a number at most {}", e.what(),
                            std::numeric_limits<int>::max()));
  } catch (const CLI::ArgumentMismatch& e) {  // of a list, or of a flag's single value
    const std::string what = e.what();
    throw Error(
        fmt::format("{}; see {} --help",
                    what.ends_with(" missing") ? what.substr(0, what.find(':')) + " needs a value" : what,
                    typed_command(app, argc, argv).words));
  } catch (const CLI::FileError& e) {
    throw Error(fmt::format("--config: {}", e.what()));
  } catch (const CLI::ParseError& e) {
    const auto config = std::dynamic_pointer_cast<ConfigFile>(app.get_config_formatter());
    throw Error(fmt::format(
        "{}{}; see {} --help", e.what(),
        config && !config->file().empty() ? fmt::format(" (here, or in '{}')", config->file()) : "",
        typed_command(app, argc, argv).words));
  }
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& run) {
  std::signal(SIGXFSZ, SIG_IGN);  // if a file reaches its size limit, the write fails instead
  start_log(app.get_name());
  try {
    require_standard_output();
    if (parse_command_line(app, argc, argv)) run();
    finish_standard_output();
    return 0;
  } catch (const std::exception& e) {
    log_error(message_of(e));
    return 1;
  }
}

}  // namespace tandem::apps
