#include "claims.h"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace tandem::apps {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double geometric_mean(const std::vector<double>& values) {
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

std::string percent(Range r) {
  if (std::abs(r.most - r.least) < 5e-4) return fmt::format("{:+.1f} %", 100 * r.least);
  return fmt::format("{:+.1f} … {:+.1f} %", 100 * r.least, 100 * r.most);
}

Claim claim(const std::string& asked, Range paper, Range ours, const std::string& why) {
  const Verdict verdict = compared(paper, ours);
  return {asked, percent(paper), percent(ours), verdict, verdict == Verdict::agrees ? "" : why};
}

Claim claim(const std::string& asked, double paper, double ours, const std::string& why) {
  return claim(asked, Range{paper, paper}, Range{ours, ours}, why);
}

std::string times(double ratio) { return fmt::format("×{:.3g}", ratio); }

Claim ratio_claim(const std::string& asked, double paper, double ours, const std::string& why) {
  Verdict verdict = compared({paper, paper}, {ours, ours});
  if (verdict != Verdict::agrees)  // directions are those of the change
    verdict = compared({paper - 1, paper - 1}, {ours - 1, ours - 1});
  return {asked, times(paper), times(ours), verdict, verdict == Verdict::agrees ? "" : why};
}

std::string share(double part) { return fmt::format("{:.1f} %", 100 * part); }

Claim share_claim(const std::string& asked, double paper, double ours, const std::string& why) {
  const Verdict verdict = compared({paper, paper}, {ours, ours});
  return {asked, share(paper), share(ours), verdict, verdict == Verdict::agrees ? "" : why};
}

Claim claim(const std::string& asked, const std::string& paper, bool holds, const std::string& ours,
            const std::string& why) {
  return {asked, paper, ours, holds ? Verdict::agrees : Verdict::differs, holds ? "" : why};
}

}  // namespace tandem::apps
