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
#include <tandem/ops/apply.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/varied.h>

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
  Updates(Graph& graph, ValueId update_if, const UpdateOptions& options)
      : g_(graph), update_if_(update_if), o_(options) {}

  void add(StateId id, ValueId grad) {
    const State parameter = g_.state(id);
    Trace trace(g_);
    trace.set_tag(tag_of(Phase::update, parameter));
    const ParameterGroup* group = use_group_of(parameter.path);
    Tensor lr = trace.tensor(rate(trace, parameter));
    if (group && group->lr_scale != 1) lr = scale(lr, group->lr_scale);
    const Tensor g = trace.tensor(grad), update_if = guard(trace, parameter);
    std::visit(
        [&](const auto& options) {
          const std::vector<StateId> kept = kept_by(options, id, parameter);
          Tensors state;
          for (StateId s : kept) state.push_back(trace.read(s));
          Tensors inputs = inputs_of(options, state, g, lr);
          if (update_if) inputs.push_back(update_if);
          const bool guarded = update_if.defined();
          std::vector<OpPtr> ops;
          for (const ModelOptions& model : o_.each)
            ops.push_back(op_of(std::get<std::decay_t<decltype(options)>>(model.optimizer), group, guarded));
          if (ops.empty()) ops.push_back(op_of(options, group, guarded));
          const Tensors updated =
              ops.size() == 1 ? apply_op(ops[0], inputs)
                              : apply_to_each(ops, {inputs, std::vector(inputs.size(), true), o_.models});
          for (std::size_t i = 0; i < kept.size(); ++i) trace.assign(kept[i], updated[i]);
        },
        o_.optimizer);
  }

  void require_all_used() const {
    for (std::size_t i = 0; i < o_.groups.size(); ++i) {
      const std::string group =
          fmt::format("parameter group {} ({})", i, fmt::join(o_.groups[i].parameters, ", "));
      for (const std::string& pattern : o_.groups[i].parameters)
        if (!named_.contains(&pattern))
          throw Error(fmt::format("{}: '{}' names no trained parameter", group, pattern));
      if (!used_.contains(&o_.groups[i])) throw Error(group + " has no parameter of its own");
    }
  }

 private:
  const ParameterGroup* use_group_of(const std::string& path) {
    for (const ParameterGroup& group : o_.groups)
      for (const std::string& pattern : group.parameters)
        if (matches(pattern, path)) named_.insert(&pattern);
    const ParameterGroup* const group = group_of(o_.groups, path);
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
  Shape per_model() const { return o_.models > 1 ? Shape{o_.models} : Shape{}; }

  // Whether the parameter is updated; undefined if it always is. One input per stage says which models are
  // active.
  Tensor guard(Trace& trace, const State& parameter) {
    const Tensor finite = update_if_ >= 0 ? trace.tensor(update_if_) : Tensor();
    if (!o_.is_masked) return finite;
    ValueId& guard = guards_.try_emplace(parameter.stage, -1).first->second;
    if (guard < 0) {
      const auto input = std::make_shared<InputOp>(kActiveInput, TensorType{DType::b8, per_model()}, true);
      const Tensor active = trace.apply(input, {}).at(0);
      guard = trace.value(finite ? where(active, finite, active) : active);
    }
    return trace.tensor(guard);
  }

  // A state that the optimizer keeps for a parameter.
  StateId add_state(const char* what, const State& of, const TensorType& type) {
    return g_.add_state(
        {fmt::format("{}{}.{}", kOptimizerPath, what, of.path), type, false, of.stage, of.device});
  }

  // The parameter, and the states that its updates keep.
  std::vector<StateId> kept_by(const SgdOptions& options, StateId id, const State& parameter) {
    if (options.momentum == 0 && !o_.keeps_velocity) return {id};
    return {id, add_state("momentum", parameter, parameter.type)};
  }
  std::vector<StateId> kept_by(const AdamOptions&, StateId id, const State& parameter) {
    return {id, add_state("exp_avg", parameter, parameter.type),
            add_state("exp_avg_sq", parameter, parameter.type),
            add_state("step", parameter, {DType::f32, per_model()})};
  }

  OpPtr op_of(SgdOptions options, const ParameterGroup* group, bool guarded) const {
    if (group && group->weight_decay) options.weight_decay = *group->weight_decay;
    return std::make_shared<SgdUpdateOp>(options, guarded, o_.keeps_velocity && options.momentum == 0);
  }
  OpPtr op_of(AdamOptions options, const ParameterGroup* group, bool guarded) const {
    if (group && group->weight_decay) options.weight_decay = *group->weight_decay;
    return std::make_shared<AdamUpdateOp>(options, guarded);
  }
  static Tensors inputs_of(const SgdOptions&, Tensors state, const Tensor& g, const Tensor& lr) {
    state.insert(state.end(), {g, lr});
    return state;
  }
  static Tensors inputs_of(const AdamOptions&, const Tensors& s, const Tensor& g, const Tensor& lr) {
    return {s[0], s[1], s[2], g, s[3], lr};
  }

  Graph& g_;
  const ValueId update_if_;
  const UpdateOptions& o_;
  std::map<int, ValueId> rates_, guards_;  // by stage
  std::set<const ParameterGroup*> used_;
  std::set<const std::string*> named_;  // patterns with a parameter
};

}  // namespace

TrainingGraph add_updates(TrainingGraph training, const UpdateOptions& options) {
  for (const Node& n : training.graph.nodes())
    if (const auto* input = as<InputOp>(n);
        input && (input->input == kLearningRateInput || (options.is_masked && input->input == kActiveInput)))
      throw Error(
          fmt::format("the model has an input '{}', which is the optimizer's; give the model's another name",
                      input->input));
  Updates updates(training.graph, training.update_if, options);
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

bool keep_velocity(std::span<const ModelOptions> models) {
  return std::ranges::any_of(models, [](const ModelOptions& model) {
    const auto* sgd = std::get_if<SgdOptions>(&model.optimizer);
    return sgd && sgd->momentum != 0;
  });
}

bool keeps(const Optimizer& optimizer, std::string_view path) {
  const auto is = [&](const char* state) {
    return path.starts_with(fmt::format("{}{}.", kOptimizerPath, state));
  };
  const auto* sgd = std::get_if<SgdOptions>(&optimizer);
  if (is("momentum")) return sgd && sgd->momentum != 0;
  if (is("exp_avg") || is("exp_avg_sq") || is("step")) return !sgd;
  return true;
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

void check(std::span<const ModelOptions> models, const Optimizer& optimizer, std::span<const int> arrays) {
  for (const ModelOptions& model : models) check(model.optimizer);
  if (!models.empty() && models[0].optimizer.index() != optimizer.index())
    throw Error("model 0 has another optimizer than the strategy: give both SGD, or both Adam");
  std::size_t first = 0, next = 0;  // of an array, and of the next one
  for (std::size_t m = 0, array = 0; m < models.size(); ++m) {
    if (m == next) {
      first = m;
      next = array < arrays.size() ? m + static_cast<std::size_t>(arrays[array++]) : models.size();
    }
    if (models[m].optimizer.index() != models[first].optimizer.index())
      throw Error(fmt::format(
          "model {} has another optimizer than model {}: the models of an array keep the same states, so those with SGD and "
          "those with Adam need arrays of their own",
          m, first));
  }
}

}  // namespace tandem::engine
