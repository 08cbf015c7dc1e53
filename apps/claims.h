#pragma once
#include <string>
#include <vector>

#include "report.h"

namespace tandem::apps {

double mean(const std::vector<double>& values);
double geometric_mean(const std::vector<double>& values);

/// Returns changes as text: 0.1 as "+10.0 %", and a range as "+5.0 … +10.0 %".
std::string percent(Range changes);

/// Compares changes. `why` says why they differ, and is left out if they agree.
Claim claim(const std::string& asked, Range paper, Range ours, const std::string& why);
Claim claim(const std::string& asked, double paper, double ours, const std::string& why);
/// Returns a ratio as text: "×1.68".
std::string times(double ratio);
/// Compares ratios.
Claim ratio_claim(const std::string& asked, double paper, double ours, const std::string& why);
/// Returns a share of a whole as text: 0.1 as "10.0 %".
std::string share(double part);
/// Compares shares.
Claim share_claim(const std::string& asked, double paper, double ours, const std::string& why);
/// A sentence without a number, which holds or does not.
Claim claim(const std::string& asked, const std::string& paper, bool holds, const std::string& ours,
            const std::string& why);

}  // namespace tandem::apps
