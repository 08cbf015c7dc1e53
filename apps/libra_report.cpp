#include "libra_report.h"

#include <fmt/format.h>

#include "libra_simulation.h"

namespace tandem::apps {
namespace {

// What the profiles hold, for the page.
std::string inputs_of(const LibraResults& results) {
  std::string text;
  for (const LibraNetwork& network : results.networks) {
    double bytes = 0;
    for (const GradientLayer& layer : network.profile.layers) bytes += layer.gradient_bytes;
    text += fmt::format(
        "{}{}: {:.1f} million parameters in {} layers, batch {:.0f}, forward {:.1f} ms, backward {:.1f} ms",
        text.empty() ? "" : "; ", network.title, bytes / 4e6, network.profile.layers.size(),
        network.profile.batch_size, network.profile.forward_ms, network.profile.compute_ms());
  }
  return text + ".";
}

}  // namespace

Report libra_report(const std::string& measured) {
  Report report, of_measured;
  if (!measured.empty()) add_measured(measured, of_measured);  // first, since it can be malformed
  const LibraResults results = simulate_libra();
  report.title = "LIBRA, reproduced";
  report.introduction = {
      "The paper: Y. Liu, B. Jiang, S. Zhao, T. Lin, X. Wang, C. Zhou, LIBRA: Contention-Aware GPU Thread "
      "Allocation for Data Parallel Training in High Speed Networks. This page was written by tandem reproduce "
      "libra.",
      "All results but those marked as measured are simulated, for the paper's cluster: one V100 in each of 8 "
      "nodes, 50 Gb/s, a ring (Eq. 4). LIBRA makes at most K = 10 groups. While it searches, all-reduces begin only "
      "at the edges of Z = 150 equal parts of the computation. It chooses among 128 to 4096 threads. The other "
      "policies have the threads of NCCL 2.4.8, which are 512 for all but the smallest messages.",
      "The policies have the paper's names. SE reduces all gradients at once, after backward. H-N is Horovod with "
      "NCCL's threads, and MG-N is MG-WFBP with NCCL's threads. LIBRA-M has the groups of MG-WFBP, and the threads that LIBRA "
      "chooses. MG-CF is MG-WFBP if all-reduces and computation did not slow each other down, which no real run has.",
      "The profiles of the networks follow from their layers and from published speeds of V100s; nothing was run, "
      "and nothing was fitted to the results below, but Fig. 1 gives two constants of the contention (docs/profiles/make.py has all sources). " +
          inputs_of(results),
      "A result agrees if it is inside the paper's range, or within a tenth of its ends. It overlaps if a part of "
      "it is. Otherwise it has the same direction, or it differs. It is given if the paper's number is an input."};
  report.claims = libra_claims(results);
  report.figures = libra_figures(results);
  report.claims.insert(report.claims.end(), of_measured.claims.begin(), of_measured.claims.end());
  report.figures.insert(report.figures.end(), of_measured.figures.begin(), of_measured.figures.end());
  return report;
}

}  // namespace tandem::apps
