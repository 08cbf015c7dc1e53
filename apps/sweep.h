#pragma once
#include <string>
#include <utility>
#include <vector>

#include "train_options.h"

namespace tandem::apps {

/// Returns the names of the flags whose values can differ between models that train side by side.
const std::vector<std::string>& swept_flags();

/// Returns the runs that train what --sweep asks for, before their flags are settled. Models side by side
/// have batches of one size, so a sweep over batch-size is one run for each size, with the rest of the sweep
/// and, if there are several, a directory of its own in --output. Other options are one run as they are.
/// Throws Error if a flag is for one run alone, or if the sizes are no list of different values.
std::vector<TrainOptions> runs_of(const TrainOptions& options);

/// Reads --sweep: flags without dashes, each with a list of values or a range to draw from, joined by
/// semicolons. Values of a flag that is a list are joined by colons.
///
///     lr=0.1,0.05;wd=1e-4,5e-4        4 models: each rate with each weight decay; 8: each twice
///     lr~log(1e-4,1e-1);betas=0.9:0.99,0.9:0.999
///
/// `~log(a,b)` draws from a … b with equal chances for each factor, `~uniform(a,b)` for each difference; then
/// `models` must say how many models there are, a multiple of the combinations of the lists. The draws are a
/// function of the first of `seeds`. Without a range, models with equal values have seeds that count on from
/// it, unless `seeds` has one for each. Returns for each model its flags and their values, as on a command
/// line. Throws Error naming what is wrong.
using SweptValues = std::vector<std::pair<std::string, std::string>>;
std::vector<SweptValues> read_sweep(const std::string& text, int models,
                                    const std::vector<std::uint64_t>& seeds);

/// Returns whether this --sweep gives values for a flag.
bool gives(const std::string& text, const std::string& flag);

/// Returns the options with a flag set to `value`, as it stands on a command line. Throws Error if it cannot
/// be read.
void set_flag(TrainOptions& options, const std::string& flag, const std::string& value);

/// Returns the options of a run of one of the models alone.
TrainOptions options_of_model(const TrainOptions& options, int model);

/// Returns the command line of that run, without flags for its output and checkpoints.
std::string command_of_model(const TrainOptions& options, int model);
/// Returns the same as a file for --config.
std::string config_of_model(const TrainOptions& options, int model);
/// Returns a sentence that names the models of a sweep whose commands are equal to those of others; empty if
/// there are none.
std::string models_that_repeat_others(const TrainOptions& options);

}  // namespace tandem::apps
