#pragma once
#include <string>
#include <vector>

namespace tandem::apps {

/// Returns each model's number, or the least and the most of many; that of a diverged model is "-".
std::string of_models(const std::vector<double>& values, int decimals, const char* unit = "");

/// Returns "test accuracy 97.20, 96.85 %" for fractions of correct samples.
std::string accuracy_line(const std::vector<double>& accuracy);

}  // namespace tandem::apps
