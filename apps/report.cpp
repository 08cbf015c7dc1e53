#include "report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/error.h>

#include "output_file.h"
#include "own_file.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPage = "index.html";
constexpr std::size_t kMostRows = 40;  // of a table
constexpr const char* kStyle = R"(
body { font-family: sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; line-height: 1.45; color: #222 }
h1 { font-size: 1.5em } h2 { font-size: 1.2em; margin-top: 2em }
table { border-collapse: collapse; margin: 1em 0; font-size: 0.9em }
th, td { border: 1px solid #ccc; padding: 0.35em 0.6em; text-align: left; vertical-align: top }
th { background: #f2f2f2 } td.number { text-align: right; font-variant-numeric: tabular-nums }
.agrees { background: #dff2e4 } .overlaps, .same { background: #fdf3d6 } .differs { background: #f9dcd8 } .given, .not { background: #eee }
.claims td:nth-child(2), .claims td:nth-child(3) { min-width: 8.5em }
svg { max-width: 100%; height: auto } details { margin-bottom: 1em }
)";

std::string html_of(const std::vector<Claim>& claims) {
  std::string text =
      "<table class=\"claims\">\n<tr><th>asked</th><th>the paper's</th><th>ours</th><th></th><th>why it differs</th></tr>\n";
  for (const Claim& c : claims) {
    const std::string words = words_of(c.verdict), style = words.substr(0, words.find(' '));
    text += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}</td><td>{}</td></tr>\n",
                        escaped(c.asked), escaped(c.paper), escaped(c.ours), style, words, escaped(c.why));
  }
  return text + "</table>\n";
}

// The values of a panel: a row for each place, a column for each series.
std::string html_of(const Figure& figure, const Panel& panel) {
  std::string text = fmt::format("<table>\n<tr><th>{}{}{}</th>", escaped(panel.name),
                                 panel.name.empty() ? "" : ": ", escaped(figure.place_name));
  for (const Series& s : panel.series) text += fmt::format("<th>{}</th>", escaped(s.name));
  text += "</tr>\n";
  for (std::size_t i = 0; i < panel.places.size(); ++i) {
    text += fmt::format("<tr><td>{}</td>", escaped(panel.places[i]));
    for (const Series& s : panel.series)
      text += fmt::format("<td class=\"number\">{}</td>",
                          std::isnan(s.values[i]) ? "" : fmt::format("{:.4g}", s.values[i]));
    text += "</tr>\n";
  }
  return text + "</table>\n";
}

std::string html_of(const Figure& figure) {
  std::string text =
      fmt::format("<h2>{}</h2>\n<p>{}</p>\n{}", escaped(figure.title), escaped(figure.text), to_svg(figure));
  const bool is_long =
      std::ranges::any_of(figure.panels, [](const Panel& p) { return p.places.size() > kMostRows; });
  if (figure.kind == Figure::Kind::timeline || is_long)
    return text + fmt::format("<p>{}.csv has the numbers.</p>\n", figure.id);
  text += fmt::format("<details><summary>{} as numbers ({}.csv has all digits)</summary>\n",
                      escaped(figure.value_name), figure.id);
  for (const Panel& panel : figure.panels) text += html_of(figure, panel);
  return text + "</details>\n";
}

}  // namespace

const char* words_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::agrees: return "agrees";
    case Verdict::overlaps: return "overlaps";
    case Verdict::direction: return "same direction";
    case Verdict::differs: return "differs";
    case Verdict::unexamined: return "not examined";
    case Verdict::given: return "given";
  }
  return "";
}

Range range_of(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return {least, most};
}

Verdict compared(Range paper, Range ours) {
  constexpr double kNear = 0.1;
  const double least = paper.least - kNear * std::abs(paper.least);
  const double most = paper.most + kNear * std::abs(paper.most);
  if (ours.least >= least && ours.most <= most) return Verdict::agrees;
  if (ours.least <= most && ours.most >= least) return Verdict::overlaps;
  const bool both_rise = paper.least > 0 && ours.least > 0, both_fall = paper.most < 0 && ours.most < 0;
  return both_rise || both_fall ? Verdict::direction : Verdict::differs;
}

namespace {

// The page's last lines list its files, each with the checksums that it had, so that a later report may
// replace them.
constexpr const char *kList = "<!-- files:\n", *kListEnd = "-->\n";
std::string list_of_files(const ReportFiles& files) {
  std::string lines = kList;
  for (const auto& [name, checksums] : files)
    lines += fmt::format("{} {}\n", name, fmt::join(checksums, " "));
  return lines + kListEnd;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Of a page, without the list.
std::string checksum_of_file(const fs::path& file) {
  std::string text = text_of(file);
  if (const std::size_t list = text.rfind(kList); file.filename() == kPage && list != std::string::npos)
    if (const std::size_t end = text.find(kListEnd, list); end != std::string::npos)
      text.erase(list, end + std::string_view(kListEnd).size() - list);
  return engine::checksum_of(text);
}

// Returns what a report wrote into a directory.
ReportFiles files_of_report_in(const std::string& directory) {
  const fs::path page = fs::path(directory) / kPage;
  if (look_at(page.string(), "page") != Found::own) return {};
  const std::string text = text_of(page);
  const std::size_t list = text.rfind(kList);
  ReportFiles files;
  std::istringstream lines(list == std::string::npos ? "" : text.substr(list + std::string(kList).size()));
  for (std::string line; std::getline(lines, line) && line + "\n" != kListEnd;) {
    std::istringstream words(line);
    std::string name, checksum;
    words >> name;
    while (words >> checksum) files[name].insert(checksum);
  }
  return files;
}

}  // namespace

std::string to_html(const Report& r) {
  std::string text = fmt::format(
      "{2}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n"
      "<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      escaped(r.title), kStyle, kPageHead);
  for (const std::string& paragraph : r.introduction) text += fmt::format("<p>{}</p>\n", escaped(paragraph));
  text += "<h2>What agrees with the paper</h2>\n" + html_of(r.claims);
  for (const Figure& figure : r.figures) text += html_of(figure);
  return text + "</body>\n</html>\n";
}

void ReportDirectory::look_at_earlier_report() {
  if (own_.empty()) written_ = files_of_report_in(directory_);
}

void ReportDirectory::require_replaceable(std::vector<std::string> names) {
  look_at_earlier_report();
  names.insert(names.begin(), kPage);
  std::error_code error;
  for (const std::string& name : names) {
    const fs::path file = fs::path(directory_) / name;
    if (own_.contains(name) || !fs::exists(fs::symlink_status(file, error))) continue;
    const auto known = written_.find(name);
    if (known == written_.end() || !fs::is_regular_file(fs::symlink_status(file, error)) ||
        !known->second.contains(checksum_of_file(file)))
      throw Error(fmt::format(
          "--output '{}' holds {}, which no report of this version wrote so: it stays; choose another directory, or "
          "move it away",
          directory_, name));
    if (!force_)
      throw Error(
          fmt::format("--output '{}' holds {} already; choose another directory, or replace its files "
                      "with --force",
                      directory_, name));
  }
}

void ReportDirectory::write(const Report& report) {
  look_at_earlier_report();
  std::vector<std::pair<std::string, std::string>> files = report.files;
  for (const Figure& figure : report.figures) {
    files.emplace_back(figure.id + ".csv", to_csv(figure));
    files.emplace_back(figure.id + ".svg", to_svg(figure));
  }
  std::vector<std::string> names;
  for (const auto& [name, text] : files) names.push_back(name);
  require_replaceable(std::move(names));
  const std::string page = to_html(report);
  for (const auto& [name, text] : files) written_[name].insert(engine::checksum_of(text));
  written_[kPage].insert(engine::checksum_of(page));
  files.emplace(files.begin(), kPage, page + list_of_files(written_));
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error || !fs::is_directory(directory_))
    throw Error(fmt::format("--output '{}' cannot be made as a directory{}; choose another", directory_,
                            error ? ": " + error.message() : ""));
  for (const auto& [name, text] : files) {
    write_file((fs::path(directory_) / name).string(), text);
    own_.insert(name);
  }
}

}  // namespace tandem::apps
