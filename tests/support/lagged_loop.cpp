#include "lagged_loop.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/copy.h>
#include <tandem/ops/eager.h>
#include <tandem/ops/kernels.h>
#include <tandem/ops/loss.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>

#include "environment.h"

namespace tandem::testing {
using namespace engine;
namespace {

thread_local Tensors made_of_weights;  // by the last forward

// The copies of weights that the last forward made for later stages.
struct StageCopies {
  std::map<std::string, std::int64_t> stages{};  // by module
  std::map<const Tensor::Impl*, std::int64_t> owners{};
  bool apart = false;  // each stage's copy is a leaf: it has a gradient of its own
  struct Copy {
    Tensor weight;
    std::int64_t stage;
    Tensor tensor;
  };
  std::vector<Copy> copies{};
};
thread_local StageCopies stage_copies;

struct Ticks {
  std::int64_t forward, backward;
};

// The tick when stage k of n works on batch b. The update by b comes at the end of its backward's tick.
Ticks ticks(const std::string& schedule, std::int64_t n, std::int64_t k, std::int64_t b) {
  // Each tick is a forward or a backward, alternating; a batch enters every other tick (DualPipe paper,
  // Fig. 6a).
  if (schedule == "pipedream" || schedule == "pipedream-vs") return {2 * b + k, 2 * b + 2 * n - 1 - k};
  // Each tick is a forward and a backward; a batch enters every tick (DualPipe paper, Fig. 6b, Algorithm 1).
  if (schedule == "dualpipe" || schedule == "dualpipe-vs" || schedule == "spectrain")
    return {b + k, b + 2 * n - 2 - k};
  // The pipeline drains between batches.
  return {2 * b, 2 * b + 1};
}

// Bypasses the tape: recorded ops will read these values.
void overwrite(Tensor to, const Tensor& from) {
  std::memcpy(to.data(), from.data(), static_cast<std::size_t>(to.type().bytes()));
}

Tensor copy_of(const Tensor& t) {
  Tensor copy = Tensor::empty(t.type());
  overwrite(copy, t);
  return copy;
}

// Recomputes the tensor from the present weights.
void make_again(const Tensor& t) {
  const auto& history = t.impl()->history;
  if (!history) return;
  for (const Tensor& input : history->inputs) make_again(input);
  const Tensors made = evaluate(cpu_kernels(), history->op, history->inputs, history->tag);
  for (std::size_t i = 0; i < made.size(); ++i) overwrite(history->outputs[i], made[i]);
}

struct Weight {
  std::string path;
  Tensor tensor;  // the module's
  std::int64_t stage;
  StateDict kept{};                        // the optimizer's state, under its names
  std::vector<Tensor> versions{};          // versions[n]: after n updates of this run
  std::vector<StateDict> kept_versions{};  // the optimizer's state then
};

class Loop {
 public:
  Loop(const Job& job, const Strategy& strategy, std::size_t model)
      : job_(job), strategy_(strategy), host_(job, strategy.microbatches), number_(model) {
    nn::set_default_dtype(job.dtype);
    nn::set_seed(job.seeds[model]);
    model_ = job.model();
    model_->initialize(job.seeds[model]);
    std::size_t stage = 0;
    for (auto& [path, p] : model_->named_parameters()) {
      if (stage < strategy.cuts.size() && path.starts_with(strategy.cuts[stage] + ".")) ++stage;
      if (!p->buffer) weights_.push_back({path, p->tensor, static_cast<std::int64_t>(stage)});
    }
    stage_copies = {.apart = strategy.microbatches > 1};
    for (const Weight& w : weights_) {
      stage_copies.stages[w.path.substr(0, w.path.find('.'))] = w.stage;
      stage_copies.owners[w.tensor.impl().get()] = w.stage;
    }
    if (static_cast<int>(stage) != strategy.stages - 1)
      throw Error("lagged_loop: a cut is missing, or names no module with parameters");
  }

  Outcome run() {
    Outcome outcome;
    std::int64_t batch = 0;
    for (std::int64_t batches : job_.drains) {
      first_batch_ = batch;
      for (Weight& w : weights_) w.versions = {copy_of(w.tensor)}, w.kept_versions = {w.kept};
      for (std::int64_t b = 0; b < batches; ++b) {
        outcome.losses.push_back({step(b, batch++)});
        outcome.predictions.push_back(prediction_errors_after(b));
      }
      for (const Weight& w : weights_) overwrite(w.tensor, w.versions.back());
    }
    outcome.state = model_->state();
    for (const Weight& w : weights_)
      for (const auto& [name, value] : w.kept)
        outcome.state[std::string(kOptimizerPath) + name + "." + w.path] = value;
    return outcome;
  }

 private:
  // Batch b of this run is batch number `batch` of all.
  double step(std::int64_t b, std::int64_t batch) {
    Tensor total;
    std::vector<Part> parts;
    for (int i = 0; i < strategy_.microbatches; ++i) {
      const EagerBatch scope(batch, i);
      for (const Weight& w : weights_) overwrite(w.tensor, forward_weight(w, b));
      made_of_weights.clear();
      stage_copies.copies.clear();
      const Tensor loss = loss_of(batch, i);
      for (const Weight& w : weights_) overwrite(w.tensor, backward_weight(w, b));
      for (const Tensor& t : made_of_weights) make_again(t);
      loss.backward();
      const NoGrad no_grad;
      add_to(parts);
      total = total ? add(total, loss) : loss;
    }
    const NoGrad no_grad;
    for (Weight& w : weights_) w.tensor.set_grad(gradient_of(w, parts));
    if (const auto& most = strategy_.gradients.clip_norm) clip(*most);
    for (Weight& w : weights_) update(w, b);
    return total.item();
  }

  // What a later stage adds to the gradient of a weight.
  struct Part {
    Tensor weight, gradient;
  };
  // Adds the gradients of a micro-batch.
  static void add_to(std::vector<Part>& parts) {
    if (!stage_copies.apart) return;
    parts.resize(stage_copies.copies.size());
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto& [weight, stage, copy] = stage_copies.copies[p];
      Tensor& sum = parts[p].gradient;
      sum = sum ? add(sum, copy.grad()) : copy.grad();
      parts[p].weight = weight;
    }
  }
  // The sum from the last stage to the first.
  static Tensor gradient_of(const Weight& w, const std::vector<Part>& parts) {
    Tensor total;
    const auto add_part = [&](const Tensor& gradient) { total = total ? add(total, gradient) : gradient; };
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      if (part->weight.impl() == w.tensor.impl()) add_part(part->gradient);
    add_part(w.tensor.grad());
    return total;
  }

  // Scales the gradients of each stage to a norm, or those of all stages.
  void clip(double most) {
    std::map<std::int64_t, Tensor> squares;
    const auto part_of = [&](const Weight& w) {
      return strategy_.gradients.clip_scope == ClipScope::stage ? w.stage : 0;
    };
    for (const Weight& w : weights_) {
      const Tensor mine = sum(w.tensor.grad() * w.tensor.grad());
      Tensor& all = squares[part_of(w)];
      all = all ? all + mine : mine;
    }
    for (Weight& w : weights_) {
      const Tensor norm = sqrt(squares.at(part_of(w)));
      const Tensor by =
          minimum(Tensor::full(norm.type(), most) / (norm + 1e-6), Tensor::full(norm.type(), 1));
      w.tensor.set_grad(w.tensor.grad() * by);
    }
  }

  Tensor loss_of(std::int64_t batch, int microbatch) {
    const std::int64_t samples = job_.batch_size / strategy_.microbatches;
    Shape shape = job_.sample;
    shape.insert(shape.begin(), samples);
    const Tensor logits = job_.logits(*model_, input("images", {job_.dtype, shape}, batch, microbatch));
    const Tensor loss = cross_entropy(logits, input("labels", {DType::i32, {samples}}, batch, microbatch));
    return strategy_.microbatches == 1 ? loss : scale(loss, 1.0 / strategy_.microbatches);
  }

  Tensor input(const std::string& name, TensorType type, std::int64_t batch, int microbatch) {
    Tensor t = Tensor::empty(std::move(type));
    host_.fill({name, t.type(), batch, microbatch, {}, t.bytes()});
    return t;
  }

  Ticks ticks_of(std::int64_t stage, std::int64_t b) const {
    return ticks(strategy_.schedule, strategy_.stages, stage, b);
  }
  // How many updates a stage has done at the start of a tick.
  std::int64_t updates_at(std::int64_t stage, std::int64_t tick) const {
    std::int64_t updates = 0;
    while (ticks_of(stage, updates).backward < tick) ++updates;
    return updates;
  }
  // The version that batch b − age assigned.
  static std::int64_t assigned(std::int64_t b, int age) { return std::max<std::int64_t>(0, b - age + 1); }
  const WeightRule* own_rule(std::int64_t stage) const {
    const auto& own = strategy_.own_schedule;
    return own ? &own->stages.at(static_cast<std::size_t>(stage)).weights : nullptr;
  }
  std::int64_t forward_version(const Weight& w, std::int64_t b) const {
    if (const WeightRule* own = own_rule(w.stage)) return assigned(b, own->forward_age);
    // Vertical sync. PipeDream: as many updates as the first stage has done when the batch enters. On
    // DualPipe's timing (Fig. 8c): what the stage has when the batch enters the pipeline.
    if (strategy_.schedule == "pipedream-vs") return updates_at(0, ticks_of(0, b).forward);
    if (strategy_.schedule == "dualpipe-vs") return updates_at(w.stage, ticks_of(0, b).forward);
    // W(t+1) = W(t) − lr·∇f(W(t−1)) (PipeDream-2BW, Narayanan et al., 2021).
    if (strategy_.schedule == "pipedream-2bw") return std::max<std::int64_t>(0, b - 1);
    return updates_at(w.stage, ticks_of(w.stage, b).forward);
  }
  Tensor forward_weight(const Weight& w, std::int64_t b) const {
    return predicted(w, forward_version(w, b), predictions(w.stage, b).forward);
  }
  Tensor backward_weight(const Weight& w, std::int64_t b) const {
    if (const WeightRule* own = own_rule(w.stage); own && own->backward_age)
      return predicted(w, assigned(b, *own->backward_age), own->backward_predicts);
    if (strategy_.schedule != "dualpipe" && strategy_.schedule != "spectrain") return forward_weight(w, b);
    return predicted(w, updates_at(w.stage, ticks_of(w.stage, b).backward), predictions(w.stage, b).backward);
  }

  // How many updates ahead stage k predicts (Eqs. 5 and 6 of the DualPipe paper, and its other readings).
  Ticks predictions(std::int64_t k, std::int64_t b) const {
    const std::int64_t n = strategy_.stages;
    if (const WeightRule* own = own_rule(k)) return {own->forward_predicts, own->backward_predicts};
    if (strategy_.schedule != "spectrain") return {0, 0};
    switch (strategy_.spectrain_target) {
      case SpecTrainTarget::paper: return {2 * n - k - 2, k};
      case SpecTrainTarget::effective: return {std::min(2 * n - k - 2, b + k), k};
      case SpecTrainTarget::serial: return {2 * (n - 1 - k), 0};
    }
    return {};
  }
  // Eq. 4, with the rates of the updates by the run's batches version, version + 1, …
  Tensor predicted(const Weight& w, std::int64_t version, std::int64_t s) const {
    const Tensor& now = w.versions.at(static_cast<std::size_t>(version));
    if (s == 0) return now;
    const NoGrad no_grad;
    const StateDict& kept = w.kept_versions.at(static_cast<std::size_t>(version));
    const auto state = [&](const char* name, const TensorType& type) {
      return kept.contains(name) ? kept.at(name) : Tensor::zeros(type);
    };
    double rates = 0;
    for (std::int64_t j = version; j < version + s; ++j) rates += rate(j).item();
    const Tensor c = scale(Tensor::full({job_.dtype, {}}, rates), group_of(w).lr_scale);
    const Optimizer optimizer = optimizer_of(w);
    if (const auto* adam = std::get_if<AdamOptions>(&optimizer))
      return adam_predict(now, state("exp_avg", now.type()), state("exp_avg_sq", now.type()),
                          state("step", {DType::f32, {}}), c, *adam);
    return predict(now, state("momentum", now.type()), c);
  }

  // After the update by batch b of this run.
  std::vector<PredictionError> prediction_errors_after(std::int64_t b) const {
    std::vector<PredictionError> errors;
    for (std::int64_t stage = 0; stage < strategy_.stages; ++stage)
      for (const int s : strategy_.measure_prediction) {
        if (s > b) continue;
        double predicted_squares = 0, stale_squares = 0;
        std::int64_t elements = 0;
        for (const Weight& w : weights_) {
          if (w.stage != stage) continue;
          const std::vector<double> now = w.versions.back().values(),
                                    then = predicted(w, b + 1 - s, 0).values(),
                                    ahead = predicted(w, b + 1 - s, s).values();
          for (std::size_t i = 0; i < now.size(); ++i) {
            predicted_squares += (now[i] - ahead[i]) * (now[i] - ahead[i]);
            stale_squares += (now[i] - then[i]) * (now[i] - then[i]);
          }
          elements += std::ssize(now);
        }
        const auto rmse = [&](double squares) { return std::sqrt(squares / static_cast<double>(elements)); };
        errors.push_back({static_cast<int>(stage), s, {rmse(predicted_squares)}, {rmse(stale_squares)}});
      }
    return errors;
  }

  // Of batch b of this run.
  Tensor rate(std::int64_t b) const {
    return Tensor::full({job_.dtype, {}}, job_.rate(number_, first_batch_ + b));
  }
  // The first group, "*.<name>", to which the weight belongs.
  ParameterGroup group_of(const Weight& w) const {
    for (const ParameterGroup& group : strategy_.parameter_groups)
      for (const std::string& pattern : group.parameters)
        if (w.path.ends_with(pattern.substr(1))) return group;
    return {};
  }
  // The optimizer, with the group's weight decay.
  Optimizer optimizer_of(const Weight& w) const {
    Optimizer optimizer = strategy_.optimizer;
    if (const auto decay = group_of(w).weight_decay)
      std::visit([&](auto& options) { options.weight_decay = *decay; }, optimizer);
    return optimizer;
  }

  void update(Weight& w, std::int64_t b) const {
    const Tensor lr = scale(rate(b), group_of(w).lr_scale);
    const Optimizer optimizer = optimizer_of(w);
    const Tensor& latest = w.versions.back();
    const Tensor grad = w.tensor.grad();
    const auto kept = [&](const char* name, const TensorType& type) -> Tensor& {
      Tensor& t = w.kept[name];
      return t = t ? t : Tensor::zeros(type);
    };
    if (const auto* adam = std::get_if<AdamOptions>(&optimizer)) {
      Tensor &mean = kept("exp_avg", latest.type()), &square = kept("exp_avg_sq", latest.type()),
             &steps = kept("step", {DType::f32, {}});
      const Tensors updated = adam_update(latest, mean, square, grad, steps, lr, *adam);
      w.versions.push_back(updated.at(0));
      mean = updated.at(1), square = updated.at(2), steps = updated.at(3);
    } else if (const auto& sgd = std::get<SgdOptions>(optimizer); sgd.momentum == 0) {
      w.versions.push_back(sgd_update(latest, grad, lr, sgd).at(0));
    } else {
      Tensor& velocity = kept("momentum", latest.type());
      const Tensors updated = sgd_update(latest, velocity, grad, lr, sgd);
      w.versions.push_back(updated.at(0));
      velocity = updated.at(1);
    }
    w.kept_versions.push_back(w.kept);
    w.tensor.set_grad({});
  }

  const Job& job_;
  const Strategy& strategy_;
  JobHost host_;
  const std::size_t number_;      // of the model
  std::int64_t first_batch_ = 0;  // of this run
  std::unique_ptr<nn::Module> model_;
  std::vector<Weight> weights_;
};

}  // namespace

Outcome lagged_loop(const Job& job, const Strategy& strategy) {
  const EnvironmentVariable threads("TANDEM_THREADS",
                                    std::to_string(strategy.threads));  // as the lanes have
  Outcome all;
  std::vector<StateDict> states;
  for (std::size_t model = 0; model < job.seeds.size(); ++model) {
    const Outcome one = Loop(job, strategy, model).run();
    all.losses.resize(one.losses.size());
    if (model == 0) all.predictions = one.predictions;
    for (std::size_t b = 0; model > 0 && b < one.predictions.size(); ++b)
      for (std::size_t e = 0; e < one.predictions[b].size(); ++e) {
        PredictionError& of_all = all.predictions[b][e];
        of_all.predicted.push_back(one.predictions[b][e].predicted[0]);
        of_all.stale.push_back(one.predictions[b][e].stale[0]);
      }
    for (std::size_t b = 0; b < one.losses.size(); ++b) all.losses[b].push_back(one.losses[b][0]);
    states.push_back(one.state);
  }
  all.state = stack_states(states);
  return all;
}

Tensor for_later_stages(const Tensor& value) {
  return Trace::active() ? value : apply_op1(std::make_shared<CopyOp>(), {value});
}

Tensor for_module(const Tensor& weight, const std::string& module) {
  auto& [stages, owners, apart, copies] = stage_copies;
  if (Trace::active() || stages.at(module) == owners.at(weight.impl().get())) return weight;
  for (const auto& [of, stage, copy] : copies)
    if (of.impl() == weight.impl() && (stage == stages.at(module) || !apart)) return copy;
  const Tensor copy = apart ? copy_of(weight).requires_grad(true) : for_later_stages(weight);
  copies.push_back({weight, stages.at(module), copy});
  return copy;
}

Tensor of_weights(Tensor made) {
  if (!Trace::active()) made_of_weights.push_back(made);
  return made;
}

}  // namespace tandem::testing
