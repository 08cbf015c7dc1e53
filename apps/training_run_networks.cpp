// The networks of a run: their weights, and their graph.
#include <fmt/format.h>

#include <tandem/engine.h>

#include "log.h"
#include "sweep.h"
#include "training_run.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr std::int64_t kManyWeights = 50'000'000;  // are drawn in seconds

std::int64_t weights_of(nn::Module& network) {
  std::int64_t sum = 0;
  for (const auto& [path, p] : network.named_parameters()) sum += p->tensor.type().elements();
  return sum;
}

}  // namespace

// Those of a sweep, or one for all models.
void TrainingRun::make_networks() {
  for (int m = 0; m < (is_sweep() ? options_.models : 1); ++m) {
    const TrainOptions one = options_of_model(options_, m);
    networks_.push_back(network_of(one, classes_));
    if (m == 0) {
      const std::int64_t weights = options_.models * weights_of(*networks_[0]);
      require_memory(fmt::format("the weights of {}", counted(options_.models, "model")),
                     static_cast<double>(weights * size_of(DType::f32)));
      if (is_main() && weights >= kManyWeights && !start_.checkpoint)
        log_info(fmt::format("draws {:.3g} million initial weights", static_cast<double>(weights) / 1e6));
    }
    draw_weights(*networks_.back(), one);
  }
}

// The network's graph for `samples` samples; of a sweep, those of all models in one.
Graph TrainingRun::forward(const CifarData& data, std::int64_t samples) const {
  std::vector<Graph> graphs;
  for (std::size_t m = 0; m < networks_.size(); ++m) {
    const Objective objective = objective_of(options_of_model(options_, static_cast<int>(m)));
    graphs.push_back(
        trace_forward(*networks_[m], *data.train, objective, samples, true, !data.of_models.empty()));
  }
  return unify(graphs);
}

// The models whose weights are drawn are not drawn again.
StateDict TrainingRun::initial_state() const {
  std::vector<StateDict> models;
  for (int m = 0; m < options_.models; ++m) {
    const auto number = static_cast<std::size_t>(m);
    if (start_.weights.empty() && number < networks_.size()) {
      models.push_back(networks_[number]->state());
      continue;
    }
    const TrainOptions one = options_of_model(options_, m);
    const auto network = network_of(one, classes_);
    if (start_.weights.empty())
      draw_weights(*network, one);
    else
      nn::load_weights(*network, start_.weights);
    models.push_back(network->state());
  }
  return stack_states(models);
}

}  // namespace tandem::apps
