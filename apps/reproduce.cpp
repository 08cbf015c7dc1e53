#include "reproduce.h"

#include <array>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

#include "libra_report.h"
#include "report.h"

namespace tandem::apps {
namespace {

struct Paper {
  const char *name, *help;
  Report (*report)(const std::string& measured);
};
constexpr std::array kPapers{
    Paper{"libra",
          "LIBRA: Contention-Aware GPU Thread Allocation for Data Parallel Training in High Speed Networks\n"
          "(Figs. 1, 6, 7, 8, 9, simulated; Fig. 5 with --measured)",
          libra_report}};

}  // namespace

void add_papers(CLI::App& command, ReproduceOptions& o) {
  command.require_subcommand(1);
  for (const Paper& paper : kPapers) {
    auto* c = command.add_subcommand(paper.name, paper.help);
    c->add_option("--output", o.output, "directory for index.html, and a CSV and an SVG file per figure")
        ->required();
    c->add_flag("--force", o.force, "replace these files in the directory; others stay");
    c->add_option("--measured", o.measured, "measured times of policies as JSON (docs/data-parallel.md)");
  }
}

void reproduce(const CLI::App& command, const ReproduceOptions& o) {
  for (const Paper& paper : kPapers) {
    if (!command.got_subcommand(paper.name)) continue;
    const Report report = paper.report(o.measured);
    write_report(report, o.output, o.force);
    for (const Claim& c : report.claims)
      fmt::print("{:<14}  {}: {} (paper: {})\n", words_of(c.verdict), c.asked, c.ours, c.paper);
    fmt::print("\n{} in {}; open {}/index.html\n", counted(std::ssize(report.figures), "figure"), o.output,
               o.output);
  }
}

}  // namespace tandem::apps
