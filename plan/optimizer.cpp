#include <tandem/plan/optimizer.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/pointwise.h>

namespace tandem::engine {
namespace {

// "*" stands for any text.
bool matches(std::string_view pattern, std::string_view path) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == path;
  if (!path.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t at = star; at <= path.size(); ++at)
    if (matches(rest, path.substr(at))) return true;
  return false;
}

class Updates {
 public:
  Updates(Graph& graph, ValueId update_if, const Optimizer& optimizer,
          const std::vector<ParameterGroup>& groups, int models)
      : g_(graph), update_if_(update_if), optimizer_(optimizer), groups_(groups), models_(models) {}

  void add(StateId id, ValueId grad) {
    const State parameter = g_.state(id);
    Trace trace(g_);
    trace.set_tag(tag_of(Phase::update, parameter));
    const ParameterGroup* group = use_group_of(parameter.path);
    Tensor lr = trace.tensor(rate(trace, parameter));
    if (group && group->lr_scale != 1) lr = scale(lr, group->lr_scale);
    const Tensor g = trace.tensor(grad), update_if = update_if_ >= 0 ? trace.tensor(update_if_) : Tensor();
    std::visit(
        [&](auto options) {
          if (group && group->weight_decay) options.weight_decay = *group->weight_decay;
          const std::vector<StateId> kept = kept_by(options, id, parameter);
          Tensors state;
          for (StateId s : kept) state.push_back(trace.read(s));
          const Tensors updated = update(state, g, lr, options, update_if);
          for (std::size_t i = 0; i < kept.size(); ++i) trace.assign(kept[i], updated[i]);
        },
        optimizer_);
  }

  void require_all_used() const {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const std::string group =
          fmt::format("parameter group {} ({})", i, fmt::join(groups_[i].parameters, ", "));
      for (const std::string& pattern : groups_[i].parameters)
        if (!named_.contains(&pattern))
          throw Error(fmt::format("{}: '{}' names no trained parameter", group, pattern));
      if (!used_.contains(&groups_[i])) throw Error(group + " has no parameter of its own");
    }
  }

 private:
  const ParameterGroup* use_group_of(const std::string& path) {
    for (const ParameterGroup& group : groups_)
      for (const std::string& pattern : group.parameters)
        if (matches(pattern, path)) named_.insert(&pattern);
    const ParameterGroup* const group = group_of(groups_, path);
    if (group) used_.insert(group);
    return group;
  }

  // One learning-rate input per stage.
  ValueId rate(Trace& trace, const State& parameter) {
    if (const auto found = rates_.find(parameter.stage); found != rates_.end()) return found->second;
    const DType dtype = parameter.type.dtype == DType::f64 ? DType::f64 : DType::f32;
    const auto input = std::make_shared<InputOp>(kLearningRateInput, TensorType{dtype, per_model()}, true);
    return rates_[parameter.stage] = trace.value(trace.apply(input, {}).at(0));
  }
  Shape per_model() const { return models_ > 1 ? Shape{models_} : Shape{}; }

  // A state that the optimizer keeps for a parameter.
  StateId add_state(const char* what, const State& of, const TensorType& type) {
    return g_.add_state(
        {fmt::format("{}{}.{}", kOptimizerPath, what, of.path), type, false, of.stage, of.device});
  }

  // The parameter, and the states that its updates keep.
  std::vector<StateId> kept_by(const SgdOptions& options, StateId id, const State& parameter) {
    if (options.momentum == 0) return {id};
    return {id, add_state("momentum", parameter, parameter.type)};
  }
  std::vector<StateId> kept_by(const AdamOptions&, StateId id, const State& parameter) {
    return {id, add_state("exp_avg", parameter, parameter.type),
            add_state("exp_avg_sq", parameter, parameter.type),
            add_state("step", parameter, {DType::f32, per_model()})};
  }

  // The next contents of these.
  static Tensors update(const Tensors& s, const Tensor& g, const Tensor& lr, const SgdOptions& options,
                        const Tensor& update_if) {
    return s.size() == 1 ? sgd_update(s[0], g, lr, options, update_if)
                         : sgd_update(s[0], s[1], g, lr, options, update_if);
  }
  static Tensors update(const Tensors& s, const Tensor& g, const Tensor& lr, const AdamOptions& options,
                        const Tensor& update_if) {
    return adam_update(s[0], s[1], s[2], g, s[3], lr, options, update_if);
  }

  Graph& g_;
  const ValueId update_if_;
  const Optimizer& optimizer_;
  const std::vector<ParameterGroup>& groups_;
  const int models_;
  std::map<int, ValueId> rates_;
  std::set<const ParameterGroup*> used_;
  std::set<const std::string*> named_;  // patterns with a parameter
};

}  // namespace

TrainingGraph add_updates(TrainingGraph training, const Optimizer& optimizer,
                          const std::vector<ParameterGroup>& groups, int models) {
  for (const Node& n : training.graph.nodes())
    if (const auto* input = as<InputOp>(n); input && input->input == kLearningRateInput)
      throw Error("the model has an input 'lr', which is the optimizer's; give the model's another name");
  Updates updates(training.graph, training.update_if, optimizer, groups, models);
  for (const auto& [id, grad] : training.grads) updates.add(id, grad);
  updates.require_all_used();
  return training;
}

const ParameterGroup* group_of(const std::vector<ParameterGroup>& groups, const std::string& path) {
  const auto names = [&](const ParameterGroup& group) {
    return std::ranges::any_of(group.parameters, [&](const auto& pattern) { return matches(pattern, path); });
  };
  const auto found = std::ranges::find_if(groups, names);
  return found == groups.end() ? nullptr : &*found;
}

int states_per_parameter(const Optimizer& optimizer) {
  const auto* sgd = std::get_if<SgdOptions>(&optimizer);
  return !sgd ? 2 : sgd->momentum > 0 ? 1 : 0;  // Adam's steps are too few to count
}

void check(const Optimizer& optimizer) {
  std::visit([&](const auto& o) { require_not_negative("weight decay", o.weight_decay); }, optimizer);
  if (const auto* sgd = std::get_if<SgdOptions>(&optimizer);
      sgd && !(sgd->momentum >= 0 && sgd->momentum < 1))
    throw Error(fmt::format("momentum {}: it must be from 0 to below 1", sgd->momentum));
  if (const auto* sgd = std::get_if<SgdOptions>(&optimizer)) SgdUpdateOp{*sgd};
  if (const auto* adam = std::get_if<AdamOptions>(&optimizer)) {
    require_not_negative("epsilon", adam->epsilon);
    AdamUpdateOp{*adam};
  }
}

}  // namespace tandem::engine
