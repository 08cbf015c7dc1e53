#include "reproduce.h"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

#include "libra_report.h"
#include "log.h"
#include "report.h"

namespace tandem::apps {
namespace {

/// A paper: its command and what that computes. `figures` are the names of figures that take long. `report`
/// can save a report that is not complete yet, and returns the complete one.
struct Paper {
  const char *name, *help;
  void (*add_options)(CLI::App& command, ReproduceOptions& o);
  std::vector<std::string> (*figures)(const ReproduceOptions& o);
  Report (*report)(const ReproduceOptions& o, const SaveReport& save);
};

void add_libra_options(CLI::App& command, ReproduceOptions& o) {
  command.add_option("--measured", o.measured, "measured times of policies as JSON (docs/data-parallel.md)");
}

void add_dualpipe_options(CLI::App& command, ReproduceOptions& o) {
  DualPipeOptions& d = o.dualpipe;
  command.add_option("--scale", d.scale, dualpipe_scale_help());
  command.add_option("--only", d.only, "these figures alone, as fig9,table1; " + dualpipe_figure_help());
  command.add_option("--networks", d.networks, "train and measure these alone, as snn,vgg16");
  command.add_option("--sgd-rules", d.sgd_rules, "of fig9 and rates, as momentum,ema; without it, all");
  command.add_option("--rates", d.rates,
                     "of the figure rates, as 1,0.4: times the network's own; without it, 10 to 0.2");
  command.add_option("--iterations", d.iterations, "of each training, at least 4; 0: as --scale says");
  command.add_option("--batch-size", d.batch_size,
                     "of trainings, measurements, and Fig. 3; 0: as --scale says");
  command.add_option("--seeds", d.seeds, "trainings of each network and scheme; 0: as --scale says");
  command.add_option("--data", d.data, "directory with CIFAR-10; empty: images are drawn in its form");
}

void add_mu_two_options(CLI::App& command, ReproduceOptions& o) {
  command.add_option("--only", o.mu_two.only, "these figures alone; " + mu_two_figure_help())->delimiter(',');
  command.add_option("--networks", o.mu_two.networks, "these alone, as bert_base,vit_60m")->delimiter(',');
  command.add_option("--kernel-us", o.mu_two.kernel_us,
                     "microseconds that a kernel takes beside its operations and bytes; 0: 10");
  command.add_option("--rounds", o.mu_two.rounds,
                     "of steps, whose median fig1-measured and fig8-measured take, at least 1; default: 10");
  command.add_option("--most-models", o.mu_two.most_models, "of Figs. 7, 8 and 9, at least 2; 0: 12");
}

constexpr std::array kPapers{
    Paper{"libra",
          "LIBRA: Contention-Aware GPU Thread Allocation for Data Parallel Training in High Speed Networks\n"
          "(Figs. 1, 6, 7, 8, 9, simulated; Fig. 5 with --measured)",
          add_libra_options, [](const ReproduceOptions&) { return std::vector<std::string>(); },
          [](const ReproduceOptions& o, const SaveReport&) { return libra_report(o.measured); }},
    Paper{
        "dualpipe",
        "Efficient and Robust Parallel DNN Training through Model Parallelism on Multi-GPU Platform\n"
        "(Figs. 3 to 13 and Table 1: drawn, simulated, measured and trained on this machine)",
        add_dualpipe_options, [](const ReproduceOptions& o) { return dualpipe_figures(o.dualpipe); },
        [](const ReproduceOptions& o, const SaveReport& save) { return dualpipe_report(o.dualpipe, save); }},
    Paper{
        "mu-two",
        "μ-TWO: 3x Faster Multi-Model Training with Orchestration and Memory Optimization\n"
        "(Figs. 1, 3, 7, 8, 9 and Tables D and E, simulated from the graphs of its six networks; Figs. 1 and 8 measured, too)",
        add_mu_two_options, [](const ReproduceOptions& o) { return mu_two_figures(o.mu_two); },
        [](const ReproduceOptions& o, const SaveReport& save) { return mu_two_report(o.mu_two, save); }}};

}  // namespace

void add_papers(CLI::App& command, ReproduceOptions& o) {
  command.require_subcommand(1);
  for (const Paper& paper : kPapers) {
    auto* c = command.add_subcommand(paper.name, paper.help);
    c->add_option("--output", o.output, "directory for index.html, and a CSV and an SVG file per figure")
        ->required();
    c->add_flag("--force", o.force, "replace these files in the directory; others stay");
    paper.add_options(*c, o);
  }
}

void reproduce(const CLI::App& command, const ReproduceOptions& o) {
  for (const Paper& paper : kPapers) {
    if (!command.got_subcommand(paper.name)) continue;
    ReportDirectory directory(o.output, o.force);
    std::vector<std::string> files;
    for (const std::string& figure : paper.figures(o))
      for (const char* ending : {".csv", ".svg"}) files.push_back(figure + ending);
    directory.require_replaceable(std::move(files));
    log_info(fmt::format("computes the figures, which are then in {}", o.output));
    const Report report = paper.report(o, [&](const Report& part) { directory.write(part); });
    directory.write(report);
    for (const Claim& c : report.claims)
      fmt::print("{:<14}  {}: {} (paper: {})\n", words_of(c.verdict), c.asked, c.ours, c.paper);
    fmt::print("\n{} in {}; open {}/index.html\n", counted(std::ssize(report.figures), "figure"), o.output,
               o.output);
  }
}

}  // namespace tandem::apps
