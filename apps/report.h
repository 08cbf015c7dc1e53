#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "figure.h"

namespace tandem::apps {

/// The least and the most of some numbers, for example of one number for each network.
struct Range {
  double least = 0, most = 0;
};
Range range_of(const std::vector<double>& values);

/// How a result compares with a paper's.
enum class Verdict {
  agrees,     ///< inside the paper's range, or within a tenth of its ends
  overlaps,   ///< in part inside it
  direction,  ///< outside, with the same sign
  differs,
  unexamined,  ///< there is nothing to compare
  given        ///< the paper's number is an input here, so that an equal result shows nothing
};
Verdict compared(Range paper, Range ours);
const char* words_of(Verdict verdict);

/// A row of the table that compares a paper with its reproduction.
struct Claim {
  std::string asked, paper, ours;
  Verdict verdict = Verdict::differs;
  std::string why;  ///< why they differ; may be empty
};

/// What the reproduction of a paper says: its page.
struct Report {
  std::string title;
  std::vector<std::string> introduction;  ///< paragraphs
  std::vector<Claim> claims{};
  std::vector<Figure> figures{};
  std::vector<std::pair<std::string, std::string>> files{};  ///< more files, as name and text
};

/// Keeps a report that is not complete yet.
using SaveReport = std::function<void(const Report&)>;

/// Returns the page: everything in one HTML file, which needs no other.
std::string to_html(const Report& report);

/// Files that a report wrote, by name, with the checksums of all texts that it wrote into them.
using ReportFiles = std::map<std::string, std::set<std::string>>;

/// Where a report is written: index.html, a CSV and an SVG file for each figure, and Report::files.
class ReportDirectory {
 public:
  ReportDirectory(std::string directory, bool force) : directory_(std::move(directory)), force_(force) {}
  /// Throws Error if `write` would not replace a file of these names, or index.html, that exists.
  void require_replaceable(std::vector<std::string> names);
  /// Writes the report, over what this object wrote before; makes the directory. Throws Error if that cannot
  /// be written; if one of the files exists that no report wrote, or that was changed since (index.html lists
  /// the checksums); or if a report wrote it, this object did not, and `force` is not given.
  void write(const Report& report);

 private:
  void look_at_earlier_report();
  std::string directory_;
  bool force_;
  std::set<std::string> own_;  // what this object wrote
  ReportFiles written_;        // by this object and by an earlier report
};

}  // namespace tandem::apps
