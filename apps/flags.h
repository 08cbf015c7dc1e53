#pragma once
#include <functional>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "train_options.h"

namespace tandem::apps {
/// What a flag changes in a run. It decides what --resume does if the flag's value differs from the saved
/// run's.
enum class Change {
  network,     ///< --resume refuses, also with --evaluate, which uses only the weights
  learning,    ///< --resume refuses
  arithmetic,  ///< --resume warns that losses can differ from those of an uninterrupted run
  nothing,     ///< --resume accepts
  unrecorded   ///< --resume accepts, and args.json does not hold the flag
};

/// The values that a flag accepts; for a list, the values of each of its numbers.
struct Allowed {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  std::vector<std::string> texts{};                  ///< empty: any
  std::function<void(const TrainOptions&)> check{};  ///< throws Error for other values that are refused
};

/// Returns why a flag has no effect in a run, as the end of "--flag has no effect ..."; empty if it has one.
using Effect = std::function<std::string(const TrainOptions&)>;

enum class Special {
  none,
  value_is_optional,
  not_in_config,      ///< only for the command line
  not_in_config_toml  ///< --config reads it, but a run does not write it to config.toml
};

/// A flag of train_cifar, with everything that the program knows about it. The table of flags determines the
/// command line, --help, the checks, args.json, config.toml and what a resume compares. A new flag needs an
/// entry in flags.cpp, and a member of TrainOptions that holds its value.
struct Flag {
  template <class... T> using MemberOf = std::variant<T TrainOptions::*...>;
  using Member = MemberOf<bool, int, std::int64_t, double, std::string, std::vector<int>, std::vector<double>,
                          std::vector<std::uint64_t>>;
  using ChangeHere = Change (*)(const TrainOptions&);  ///< if other flags decide

  std::string names;  ///< as CLI11 takes them: "-a,--arch"
  Member member;
  std::string help;
  Allowed allowed{};
  Effect without_effect{};  ///< empty: it always has an effect
  std::variant<Change, ChangeHere> changes = Change::learning;
  Special special = Special::none;
  std::string key{};            ///< in args.json; by default the name, with _ for -
  std::string group{}, name{};  ///< set by flags(); the name is the first long one, without dashes
};

/// Returns all flags in the order of --help, without --help, --version and --config themselves.
const std::vector<Flag>& flags();

/// Return the value of a flag, as args.json holds it, and what another value would change in this run.
nlohmann::json value_of(const Flag& flag, const TrainOptions& options);
Change change_by(const Flag& flag, const TrainOptions& options);

}  // namespace tandem::apps
