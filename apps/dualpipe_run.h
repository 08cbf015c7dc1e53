#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <tandem/datasets/dataset.h>
#include <tandem/plan/pipeline_simulation.h>
#include <tandem/plan/stage_profile.h>

#include "dualpipe_networks.h"
#include "report.h"

namespace tandem::apps {

/// The paper's number of images in a batch.
inline constexpr std::int64_t kPaperBatch = 128;

/// What to compute, and at which size: what the options of `tandem reproduce dualpipe` say.
struct DualPipeRun {
  bool paper = false;                                ///< --scale paper
  std::vector<DualPipeNetwork> networks{};           ///< --networks; without it, the paper's
  std::vector<std::string> sgd_rules{};              ///< of Fig. 9 and the rates
  std::vector<double> rates{10, 4, 2, 1, 0.4, 0.2};  ///< of the figure of rates: times a network's own
  std::string data{};
  std::int64_t iterations = 0;             ///< of each training
  std::int64_t prediction_iterations = 0;  ///< of Fig. 9
  std::int64_t batch_size = 0;             ///< --batch-size; 0: as the scale says
  int seeds = 0;

  /// Returns the images in a batch of which --scale small has `small`, and the paper kPaperBatch.
  std::int64_t batch(std::int64_t small) const {
    return batch_size > 0 ? batch_size : paper ? kPaperBatch : small;
  }
  /// Returns the rate of a network's trainings.
  double rate(const DualPipeNetwork& network) const {
    return paper || network.small_lr == 0 ? network.lr : network.small_lr;
  }
  /// Returns the network in the size that is trained.
  std::unique_ptr<nn::Module> trained(const DualPipeNetwork& network) const {
    return paper ? network.whole() : network.small();
  }
};

/// Values of --sgd-rule: the paper's Eq. 2 leaves open which one it means.
inline constexpr std::array kSgdRules{"momentum", "ema", "raw+ema"};
/// A pipeline is validated, and so drained, after so many iterations.
inline constexpr std::int64_t kValidateEvery = 200;

/// Training and validation samples.
struct DualPipeSamples {
  DatasetPtr train, test;
};
/// Normalized images of --data, or drawn ones; and drawn texts.
struct DualPipeData {
  DualPipeSamples images, texts;
  /// Returns what a network reads.
  const DualPipeSamples& of(const DualPipeNetwork& network) const {
    return network.reads_texts ? texts : images;
  }
};
DualPipeData read_data(const DualPipeRun& run);

/// Returns drawn texts of 20 words, numbers below `kDrawnWords`, in two classes. Most words are of both; a
/// few tell a class, and 85 % of them are right.
DatasetPtr draw_texts(std::int64_t count, std::int64_t first_index);
inline constexpr std::int64_t kDrawnWords = 2000;

// The parts of the page. Each adds its figures and what they say about the paper's sentences, of all networks
// of the run: those with which the part works.

/// Figs. 6 and 8: which batch a device works on, and with which weights.
void add_schedules(const DualPipeRun& run, Report& report);
/// Figs. 10 and 11 from profiles that are fitted to the paper.
void add_families(const DualPipeRun& run, Report& report);
/// Fig. 3: what devices send, from the Programs of whole networks.
void add_transfers(const DualPipeRun& run, Report& report);
/// Figs. 4, 7, 10, 11 from profiles that are measured here, and real runs on two stages.
void add_measured(const DualPipeRun& run, Report& report);
/// Fig. 9: how good the predictions are, of the whole SNN.
void add_prediction(const DualPipeRun& run, Report& report);
/// Figs. 5, 12, 13 and Table 1: networks that are trained.
void add_training(const DualPipeRun& run, Report& report);
/// Accuracy by learning rate, for each rule of SGD: no figure of the paper, but what its Eq. 2 leaves open.
void add_rates(const DualPipeRun& run, Report& report);

}  // namespace tandem::apps
