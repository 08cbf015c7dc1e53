// Fig. 3: what devices send, from the Programs of whole networks.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/units.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/plan/build.h>
#include <tandem/plan/measured_stages.h>

#include "claims.h"
#include "dualpipe_profiles.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr int kGpus = 4;

struct Sent {
  std::string title;
  double data = 0, pipeline = 0;  // bytes between all devices, per batch
  double ratio() const { return data / pipeline; }
};

Sent sent(const std::string& title, const Graph& forward) {
  Strategy strategy = lockstep_strategy(kDualPipeSchemes[kSpecTrain], kGpus);
  strategy.kernels = nullptr;  // it does not run
  Sent result{title};
  for (const StageCost& stage : stage_costs(build(forward, strategy))) {
    result.data += 2.0 * (kGpus - 1) * stage.weight_bytes;
    result.pipeline += 2 * stage.activation_bytes;
  }
  return result;
}

// The paper calls Inception v4 the only exception. Says what larger images make of it, and of the mean.
std::string why_of_mean(const std::vector<Sent>& all, std::int64_t batch) {
  const auto inception = std::ranges::find(all, "Inception v4", &Sent::title);
  if (inception == all.end()) return "";
  const nn::WholeNetwork large = nn::make_network("inception_v4", "imagenet", batch);
  nn::fill_with_zeros(*large.module);
  const double ratio = sent("", nn::traced_loss(large)).ratio();
  std::vector<double> ratios;
  for (const Sent& bytes : all) ratios.push_back(&bytes == &*inception ? ratio : bytes.ratio());
  return fmt::format(
      " The paper calls Inception v4 the only exception, of which Data P. sends little. Here it sends {} as much as a "
      "pipeline for images of 32², and {} for those of 299², for which its authors made it. With the latter the mean "
      "is {}.",
      times(inception->ratio()), times(ratio), times(geometric_mean(ratios)));
}

}  // namespace

void add_transfers(const DualPipeRun& run, Report& report) {
  const DualPipeData data = read_data(run);
  const std::int64_t batch = run.batch(kPaperBatch);
  Panel panel{"", {}, {{"Data P.", {}}, {"pipeline", {}}}};
  std::vector<Sent> all;
  for (const DualPipeNetwork& network : run.networks) {
    const Sent& bytes =
        all.emplace_back(sent(network.title, traced(network, data.of(network)).forward(batch)));
    panel.places.push_back(network.title);
    panel.series[0].values.push_back(bytes.data / kBytesPerMb);
    panel.series[1].values.push_back(bytes.pipeline / kBytesPerMb);
  }
  report.figures.push_back(
      {"fig3",
       "Fig. 3: what four GPUs send per batch",
       fmt::format(
           "From the Programs of the whole networks, with batches of {}: a ring all-reduce of all "
           "gradients, and activations and their gradients over the three cuts that are best for DualPipe by "
           "operations.",
           batch),
       Figure::Kind::bars,
       "",
       "network",
       "parallelization",
       "MB",
       {panel}});
  std::vector<double> ratios;
  for (const Sent& bytes : all) ratios.push_back(bytes.ratio());
  const Sent& most = *std::ranges::max_element(all, {}, &Sent::ratio);
  const std::string why =
      fmt::format("Batches of {} (the paper: {}). The paper does not say where it cuts.", batch, kPaperBatch);
  report.claims.push_back(ratio_claim(
      fmt::format("Fig. 3: what Data P. sends over what a pipeline sends, at most (the paper: SNN; here: {})",
                  most.title),
      528, most.ratio(), why));
  report.claims.push_back(
      ratio_claim(fmt::format("the same, geometric mean (here of {})", fmt::join(panel.places, ", ")), 13.4,
                  geometric_mean(ratios), why + why_of_mean(all, batch)));
}

}  // namespace tandem::apps
