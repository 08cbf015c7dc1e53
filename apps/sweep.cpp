#include "sweep.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>

#include "decimal.h"
#include "flags.h"
#include "toml_text.h"

namespace tandem::apps {
using namespace engine;
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(at, begin);
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

// A flag of the sweep, with the values of a list or a range.
struct Key {
  std::string flag;
  std::vector<std::string> values{};
  bool is_log = false;
  double least = 0, most = 0;  // of a range
  bool is_range() const { return values.empty(); }
};

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

const Flag& flag_named(const std::string& name) {
  for (const Flag& flag : flags())
    for (const std::string& each : split(flag.names, ','))
      if (each == "--" + name) return flag;
  throw Error(fmt::format("--sweep: there is no flag --{}", name));
}

Key range_of(Key key, const std::string& text) {
  const bool is_log = text.starts_with("log("), is_uniform = text.starts_with("uniform(");
  const auto refuse = [&](const std::string& why) {
    throw Error(fmt::format("--sweep: '{}~{}': {}", key.flag, text, why));
  };
  if (!(is_log || is_uniform) || !text.ends_with(")")) refuse("a range is log(a,b) or uniform(a,b)");
  const std::size_t begin = text.find('(') + 1;
  std::vector<double> ends;
  try {
    ends = decimals<double>(text.substr(begin, text.size() - 1 - begin));
  } catch (const CLI::ValidationError& e) {
    refuse(e.what());
  }
  if (ends.size() != 2 || !(ends[0] < ends[1])) refuse("a range has two ends, the smaller one first");
  if (is_log && ends[0] <= 0) refuse("the ends of log are above 0");
  key.is_log = is_log;
  key.least = ends[0];
  key.most = ends[1];
  return key;
}

constexpr const char *kBatchSize = "batch-size",  // one run for each
    *kSeed = "seed";

Key key_of(const std::string& text) {
  std::string part = trimmed(text);
  part.erase(0, part.find_first_not_of('-'));  // a flag may have its dashes
  const std::size_t at = part.find_first_of("=~");
  if (at == std::string::npos || at == 0)
    throw Error(fmt::format(
        "--sweep: '{}' is no flag with its values, such as lr=0.1,0.05 or lr~log(1e-4,1e-1)", part));
  Key key{flag_named(trimmed(part.substr(0, at))).name};
  if (key.flag != kBatchSize && !contains(swept_flags(), key.flag))
    throw Error(fmt::format(
        "--sweep: models that train side by side cannot differ in --{}; they can differ in {}, and, in runs of "
        "their own, in {}",
        key.flag, fmt::join(swept_flags(), ", "), kBatchSize));
  const std::string values = trimmed(part.substr(at + 1));
  if (part[at] == '~') return range_of(std::move(key), values);
  key.values = split(values, ',');
  for (std::string& value : key.values) value = trimmed(value);
  for (const std::string& value : key.values)
    if (value.empty()) throw Error(fmt::format("--sweep: '{}' has an empty value", part));
  return key;
}

// Returns whether a flag's values are whole numbers.
bool is_whole(const std::string& flag) {
  return std::visit(
      []<class T>(T TrainOptions::*) {
        if constexpr (std::is_arithmetic_v<T>)
          return std::is_integral_v<T>;
        else if constexpr (std::is_same_v<T, std::string>)
          return false;
        else
          return std::is_integral_v<typename T::value_type>;
      },
      flag_named(flag).member);
}

// Four digits, and more of a range whose ends have more in common.
std::string draw(const Key& key, std::uint64_t seed, int model) {
  std::mt19937_64 random(fnv1a(fmt::format("{} {} {}", key.flag, seed, model)));
  const double u = static_cast<double>(random() >> 11) * 0x1p-53;  // in [0, 1)
  const double x =
      key.is_log ? key.least * std::pow(key.most / key.least, u) : key.least + u * (key.most - key.least);
  if (is_whole(key.flag)) return fmt::format("{:.0f}", x);
  const double width = (key.most - key.least) / std::max(std::abs(key.least), std::abs(key.most));
  const int digits = std::clamp(4 + static_cast<int>(std::ceil(-std::log10(width))), 4, 17);
  return fmt::format("{:.{}g}", x, digits);
}

template <class T> void read_value(T& member, const std::string& value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (value != "true" && value != "false")
      throw CLI::ValidationError(fmt::format("'{}' is not true or false", value));
    member = value == "true";
  } else if constexpr (std::is_same_v<T, std::string>) {
    member = value;
  } else if constexpr (std::is_arithmetic_v<T>) {
    member = decimal<T>(value);
  } else {
    std::string list = value;
    std::ranges::replace(list, ':', ',');
    member = decimals<typename T::value_type>(list);
  }
}

bool has_effect(const Flag& flag, const TrainOptions& o) {
  return !flag.without_effect || flag.without_effect(o).empty();
}

// A flag can have an effect for some models only: a run alone would refuse it for the others.
void leave_out_what_has_no_effect(TrainOptions& one) {
  for (const Flag& flag : flags())
    if (!has_effect(flag, one) && change_by(flag, one) == Change::learning)
      std::visit([&](auto member) { one.*member = TrainOptions{}.*member; }, flag.member);
}

// As a shell reads it back.
std::string for_shell(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (std::ranges::all_of(text, is_plain)) return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

// As it stands on a command line; empty for a flag that is off.
std::string typed(const Flag& flag, const TrainOptions& o) {
  const nlohmann::json value = value_of(flag, o);
  if (value.is_boolean()) return value.get<bool>() ? "--" + flag.name : "";
  std::string text;
  if (value.is_string()) {
    text = value.get<std::string>();
    if (text.empty()) return "";
    text = for_shell(text);
  } else if (value.is_array()) {
    for (const auto& element : value) text += (text.empty() ? "" : ",") + element.dump();
  } else {
    text = value.dump();
  }
  return fmt::format("--{} {}", flag.name, text);
}

}  // namespace

const std::vector<std::string>& swept_flags() {
  static const std::vector<std::string> names{"lr",         "sched",           "min-lr",     "decay-epochs",
                                              "decay-rate", "warmup-epochs",   "warmup-lr",  "opt",
                                              "momentum",   "sgd-rule",        "nesterov",   "betas",
                                              "wd",         "clip-grad",       "clip-value", "dropout",
                                              "init-gain",  "label-smoothing", "seed",       "data-seed"};
  return names;
}

std::vector<SweptValues> read_sweep(const std::string& text, int models,
                                    const std::vector<std::uint64_t>& seeds) {
  std::vector<Key> keys;
  for (const std::string& part : split(text, ';')) {
    Key key = key_of(part);
    for (const Key& other : keys)
      if (other.flag == key.flag) throw Error(fmt::format("--sweep: --{} is given twice", key.flag));
    keys.push_back(std::move(key));
  }
  constexpr std::size_t kMost = 1000;
  std::size_t combinations = 1;
  bool draws = false, sweeps_seeds = false;
  for (const Key& key : keys) {
    draws = draws || key.is_range();
    sweeps_seeds = sweeps_seeds || key.flag == kSeed;
    if (!key.is_range()) combinations *= key.values.size();
    if (combinations > kMost) throw Error(fmt::format("--sweep: more than {} combinations", kMost));
  }
  const auto count = models > 0 ? static_cast<std::size_t>(models) : combinations;
  if (draws && models == 0)
    throw Error("--sweep draws values from a range, so --models must say how many models there are");
  const bool can_repeat = draws || !sweeps_seeds;  // models with equal values have seeds of their own
  if (can_repeat ? count % combinations != 0 : count != combinations)
    throw Error(fmt::format("--sweep has {} combinations of values, and --models is {}: it must be {}",
                            combinations, models, can_repeat ? "a multiple of them" : "their number"));
  const bool counts_seeds = !draws && count > combinations && seeds.size() == 1;
  std::vector<SweptValues> all(count);
  for (std::size_t m = 0; m < count; ++m) {
    std::size_t left = m % combinations, block = combinations;
    for (const Key& key : keys) {
      if (key.is_range()) {
        all[m].emplace_back(key.flag, draw(key, seeds[0], static_cast<int>(m)));
        continue;
      }
      block /= key.values.size();
      all[m].emplace_back(key.flag, key.values[left / block]);
      left %= block;
    }
    if (counts_seeds) all[m].emplace_back(kSeed, std::to_string(seeds[0] + m / combinations));
  }
  return all;
}

bool gives(const std::string& text, const std::string& flag) {
  return contains(split(text, ';'), flag, [](const std::string& part) { return key_of(part).flag; });
}

void set_flag(TrainOptions& o, const std::string& name, const std::string& value) try {
  std::visit([&](auto member) { read_value(o.*member, value); }, flag_named(name).member);
} catch (const CLI::ValidationError& e) {
  throw Error(fmt::format("--{}: {}", name, e.what()));
}

namespace {

// What the runs of a sweep over batch sizes cannot share.
void require_several_runs(const TrainOptions& o, std::int64_t runs) {
  const std::string several = fmt::format("--sweep over batch-size is {}", counted(runs, "run"));
  if (contains(o.given, std::string(kBatchSize)))
    throw Error("--batch-size stands beside --sweep, which gives it too: leave out one");
  if (runs == 1) return;
  if (!o.trace.empty())
    throw Error(fmt::format("--trace {}: {}; --trace without a file gives each a trace.json in its directory",
                            o.trace, several));
  if (!o.resume.empty() && o.resume != "auto")
    throw Error(fmt::format(
        "--resume {}: {}, which --resume auto continues; --sweep without batch-size continues one", o.resume,
        several));
}

}  // namespace

std::vector<TrainOptions> runs_of(const TrainOptions& o) {
  std::vector<std::string> sizes, rest;
  for (const std::string& text : o.sweep.empty() ? std::vector<std::string>() : split(o.sweep, ';')) {
    Key key = key_of(text);
    if (key.flag != kBatchSize) {
      rest.push_back(text);
      continue;
    }
    if (!sizes.empty()) throw Error("--sweep: --batch-size is given twice");
    if (key.is_range()) throw Error("--sweep: batch-size takes a list, since each size is a run of its own");
    sizes = std::move(key.values);
  }
  if (sizes.empty()) return {o};
  const int count = static_cast<int>(sizes.size());
  require_several_runs(o, count);
  if (rest.empty() ? o.models != 0 && o.models != count : o.models % count != 0)
    throw Error(fmt::format("--sweep has {} batch sizes, and --models is {}: it must be {}", count, o.models,
                            rest.empty() ? "their number" : "a multiple of them"));
  std::vector<TrainOptions> runs;
  for (const std::string& size : sizes) {
    TrainOptions& run = runs.emplace_back(o);
    set_flag(run, kBatchSize, size);
    run.sweep = fmt::format("{}", fmt::join(rest, ";"));
    run.models = rest.empty() ? 1 : o.models / count;
    run.given.push_back(kBatchSize);
    if (rest.empty()) std::erase(run.given, "sweep");
    if (count == 1) break;
    run.part = {fmt::format("{}-{}", kBatchSize, run.batch_size),
                fmt::format("{} {}", kBatchSize, fmt::join(sizes, ", "))};
    for (const TrainOptions& other : runs)
      if (&other != &run && other.batch_size == run.batch_size)
        throw Error(fmt::format("--sweep: --batch-size {} is given twice", run.batch_size));
    if (!o.output.empty()) run.output = (std::filesystem::path(o.output) / run.part.name).string();
  }
  return runs;
}

namespace {

// Each optimizer has a learning rate of its own, unless one is given.
void set_default_rate(TrainOptions& one, const std::vector<std::string>& given, const SweptValues& swept) {
  const auto opt = std::ranges::find(swept, "opt", &SweptValues::value_type::first);
  if (opt == swept.end() || contains(given, std::string("lr"))) return;
  one.lr = {default_rate(one.arch, opt->second, one.batch_size)};
}

}  // namespace

TrainOptions options_of_model(const TrainOptions& o, int model) {
  const auto m = static_cast<std::size_t>(model);
  TrainOptions one = o;
  one.models = 1;
  one.arrays.clear();
  one.turns.clear();
  one.array_lanes = 1;
  one.array_ring = false;
  one.sweep.clear();
  one.swept.clear();
  one.prune = "none";
  one.lr = {o.lr.at(m)};
  one.seed = {o.seed.at(m)};
  if (one.data_seed < 0) one.data_seed = data_seed(o);
  if (one.synthetic_seed < 0) one.synthetic_seed = synthetic_seed(o);
  if (!o.swept.empty()) {
    set_default_rate(one, o.given, o.swept.at(m));
    for (const auto& [flag, value] : o.swept.at(m)) set_flag(one, flag, value);
  }
  if (o.models > 1 && one.on_nan == "mask") one.on_nan = "stop";
  settle_seeds(one);
  if (!o.swept.empty()) leave_out_what_has_no_effect(one);
  return one;
}

namespace {

// The flags of a run of one model alone, without those of its output and checkpoints.
std::vector<const Flag*> flags_of_model(const TrainOptions& o, int model, const TrainOptions& one) {
  std::vector<std::string> names;
  const std::vector<std::string> of_all{"sweep", "models",       "arrays",   "array-lanes", "array-ring",
                                        "turns", "prune",        "lr",       "seed",        "on-nan",
                                        "trace", "dump-profile", "transport"};
  const auto add = [&](const std::string& name) {
    if (!contains(names, name)) names.push_back(name);
  };
  for (const std::string& name : o.given)
    if (const Flag& flag = flag_named(name); change_by(flag, one) != Change::unrecorded &&
                                             !flag.group.starts_with("Checkpoints") &&
                                             !contains(of_all, name))
      add(name);
  if (contains(o.given, std::string("lr"))) add("lr");
  if (!o.swept.empty())
    for (const auto& [flag, value] : o.swept.at(static_cast<std::size_t>(model))) add(flag);
  if (one.threads > 0) add("threads");  // bits depend on them, and on ranks and stages, which mpirun can set
  if (one.ranks > 1) add("ranks");
  if (one.stages > 1) add("stages");
  if (one.seed != TrainOptions{}.seed) add("seed");
  if (one.data_seed >= 0) add("data-seed");
  if (one.synthetic_seed >= 0) add("synthetic-seed");
  std::vector<const Flag*> all;
  for (const std::string& name : names)
    if (const Flag& flag = flag_named(name); has_effect(flag, one)) all.push_back(&flag);
  return all;
}

}  // namespace

std::string command_of_model(const TrainOptions& o, int model) {
  const TrainOptions one = options_of_model(o, model);
  std::string command = "train_cifar";
  for (const Flag* flag : flags_of_model(o, model, one))
    if (const std::string text = typed(*flag, one); !text.empty()) command += " " + text;
  return command;
}

std::string models_that_repeat_others(const TrainOptions& o) {
  std::map<std::string, int> first;  // model of a command
  std::vector<std::string> repeats;
  for (int m = 0; m < o.models && !o.swept.empty(); ++m)
    if (const auto [known, fresh] = first.emplace(command_of_model(o, m), m); !fresh)
      repeats.push_back(fmt::format("{} repeats {}", m, known->second));
  return repeats.empty() ? ""
                         : fmt::format("models differ only in flags that have no effect on them: model {}",
                                       fmt::join(repeats, ", "));
}

std::string config_of_model(const TrainOptions& o, int model) {
  const TrainOptions one = options_of_model(o, model);
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  for (const Flag* flag : flags_of_model(o, model, one))
    if (flag->special != Special::not_in_config && flag->special != Special::not_in_config_toml)
      config[flag->name] = value_of(*flag, one);
  return to_toml(config);
}

}  // namespace tandem::apps
