#pragma once
#include <functional>
#include <string>
#include <vector>

#include "train_options.h"

namespace tandem::apps {

/// Fills in what the command line leaves open, from what mpirun says where it started us, and checks the
/// whole. `given` tells whether a flag was on the command line.
/// Throws Error naming the flag, what was given and what is accepted: values out of range, options that do
/// not fit together, options that would have no effect.
void settle(TrainOptions& options, const std::vector<std::string>& archs,
            const std::function<bool(const std::string& flag)>& given);

}  // namespace tandem::apps
