// Fig. 3: what devices send, from the Programs of whole networks.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/units.h>
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

Sent sent(const DualPipeNetwork& network, const DualPipeSamples& samples, std::int64_t batch) {
  const TracedNetwork net = traced(network, samples);
  Strategy strategy = lockstep_strategy(kDualPipeSchemes[kSpecTrain], kGpus);
  strategy.kernels = nullptr;  // it does not run
  Sent result{network.title};
  for (const StageCost& stage : stage_costs(build(net.forward(batch), strategy))) {
    result.data += 2.0 * (kGpus - 1) * stage.weight_bytes;
    result.pipeline += 2 * stage.activation_bytes;
  }
  return result;
}

}  // namespace

void add_transfers(const DualPipeRun& run, Report& report) {
  const DualPipeData data = read_data(run);
  const std::int64_t batch = run.batch(kPaperBatch);
  Panel panel{"", {}, {{"Data P.", {}}, {"pipeline", {}}}};
  std::vector<Sent> all;
  for (const DualPipeNetwork& network : run.networks) {
    const Sent& bytes = all.emplace_back(sent(network, data.of(network), batch));
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
  const std::string why = fmt::format(
      "Batches of {} (the paper: {}). The paper does not say where it cuts; what makes the difference is not examined.",
      batch, kPaperBatch);
  report.claims.push_back(ratio_claim(
      fmt::format("Fig. 3: what Data P. sends over what a pipeline sends, at most (the paper: SNN; here: {})",
                  most.title),
      528, most.ratio(), why));
  report.claims.push_back(
      ratio_claim(fmt::format("the same, geometric mean (here of {})", fmt::join(panel.places, ", ")), 13.4,
                  geometric_mean(ratios), why));
}

}  // namespace tandem::apps
