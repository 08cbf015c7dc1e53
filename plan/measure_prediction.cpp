#include <tandem/plan/measure_prediction.h>

#include <algorithm>
#include <map>
#include <memory>

#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/over_models.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/plan/weight_predictor.h>

namespace tandem::engine {
namespace {

// A trained state and its value after the update.
struct Updated {
  StateId state;
  ValueId value;
  Tag tag;
};

std::map<int, std::vector<Updated>> updated_by_stage(const Graph& g) {
  std::map<int, std::vector<Updated>> stages;
  for (const Node& n : g.nodes())
    if (const auto* assign = as<AssignOp>(n); assign && g.state(assign->state).trained)
      stages[n.tag.stage].push_back({assign->state, n.inputs[0], n.tag});
  return stages;
}

// Where the results of all stages are joined: on the last stage, after all updates.
Tag tag_of_result(const PipelineSchedule& schedule) {
  const int last = static_cast<int>(schedule.stages.size()) - 1;
  int lag = 0, lane = 0;
  for (const Task& task : schedule.tasks) {
    if (task.phase != Phase::update) continue;
    lag = std::max(lag, task.lag);
    if (task.stage == last) lane = task.lane;
  }
  if (schedule.devices() > 1) ++lag;
  return tag_of(Phase::update, kPredictionResult, last, schedule.stages.back().device).timed(lag, lane);
}

class Measurement {
 public:
  Measurement(Graph& graph, const Optimizer& optimizer, const std::vector<ParameterGroup>& groups, int models)
      : trace_(graph), predictor_(trace_, optimizer, groups, models), models_(models) {}

  // (updates · 2), with a model axis.
  Tensor of_stage(const std::vector<Updated>& weights, const std::vector<int>& updates) {
    Tensors numbers;
    for (const int s : updates) {
      Tensor predicted, stale;
      std::int64_t elements = 0;
      for (const Updated& w : weights) {
        const Tensor before = predictor_.predict(w.state, s, {1 - s, s, /*is_cut=*/true}, w.tag);
        const TensorType type = trace_.graph().state(w.state).type;
        const Tensor then = trace_.apply(std::make_shared<ReadOp>(w.state, s, type), {}).at(0);
        add_to(predicted, trace_.tensor(w.value) - before);
        add_to(stale, trace_.tensor(w.value) - then);
        elements += type.elements() / models_;
      }
      for (const Tensor& sum : {predicted, stale})
        numbers.push_back(sqrt(sum / static_cast<double>(elements)));
    }
    return stack(numbers, axis());
  }

  void deliver(Tensors stages, const Tag& tag) {
    trace_.set_tag(tag);
    const auto measured = std::ranges::find_if(stages, &Tensor::defined);
    for (Tensor& stage : stages)
      if (!stage.defined()) stage = Tensor::full(measured->type(), 0);
    trace_.result(kPredictionResult, concat(stages, axis()));
  }

 private:
  int axis() const { return models_ > 1 ? 1 : 0; }

  void add_to(Tensor& total, const Tensor& difference) const {
    const Tensor squares = cast(of_each_model(difference * difference, models_, sum), DType::f64);
    total = total ? total + squares : squares;
  }

  Trace trace_;
  WeightPredictor predictor_;
  const int models_;
};

}  // namespace

Graph measure_prediction(Graph graph, const std::vector<int>& updates, const PipelineSchedule& schedule,
                         const Optimizer& optimizer, const std::vector<ParameterGroup>& groups, int models) {
  if (updates.empty()) return graph;
  const auto weights = updated_by_stage(graph);
  {
    Measurement measurement(graph, optimizer, groups, models);
    Tensors stages(schedule.stages.size());
    for (const auto& [stage, of_stage] : weights)
      stages.at(static_cast<std::size_t>(stage)) = measurement.of_stage(of_stage, updates);
    measurement.deliver(std::move(stages), tag_of_result(schedule));
  }
  return graph;
}

std::vector<PredictionError> prediction_errors(const HostResult& result, const std::vector<int>& updates,
                                               int models) {
  const std::vector<double> all = result.values();
  const std::size_t per_model = all.size() / static_cast<std::size_t>(models);
  std::vector<PredictionError> errors;
  for (std::size_t i = 0; i + 1 < per_model; i += 2) {
    const std::size_t pair = i / 2;
    const int s = updates[pair % updates.size()];
    if (result.batch - result.first_batch < s) continue;
    PredictionError& error = errors.emplace_back();
    error.stage = static_cast<int>(pair / updates.size());
    error.updates = s;
    for (std::size_t m = i; m < all.size(); m += per_model) {
      error.predicted.push_back(all[m]);
      error.stale.push_back(all[m + 1]);
    }
  }
  return errors;
}

}  // namespace tandem::engine
