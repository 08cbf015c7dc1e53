// Which of a Trainer's models still train: those that diverge or are pruned are masked, and then left out.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/train/all_reduce_tuning.h>
#include <tandem/train/feed.h>
#include <tandem/train/state_link.h>
#include <tandem/train/trainer.h>

namespace tandem {
using namespace engine;
namespace {

// Models can differ in the states that their optimizers keep: where one has none, it is zero.
StateDict stack_all(std::vector<StateDict> models) {
  std::map<std::string, TensorType> types;
  for (const StateDict& model : models)
    for (const auto& [path, tensor] : model)
      if (path.starts_with(kOptimizerPath)) types.emplace(path, tensor.type());
  for (StateDict& model : models)
    for (const auto& [path, type] : types)
      if (!model.contains(path)) model.emplace(path, Tensor::zeros(type));
  return stack_states(models);
}

}  // namespace

// A NaN's sign has no meaning.
std::string Trainer::loss_text(const std::vector<double>& loss, std::size_t m, std::int64_t batch) {
  return fmt::format("the loss{} is {} at step {}", loss.size() > 1 ? fmt::format(" of model {}", m) : "",
                     std::isnan(loss[m]) ? "nan" : fmt::format("{}", loss[m]), batch);
}

// Masks the models whose losses are not finite; the last one ends the run.
void Trainer::stop_diverged(std::int64_t batch, const std::vector<double>& loss) {
  for (const int m : active_->training_in_session()) {
    if (std::isfinite(loss[static_cast<std::size_t>(m)])) continue;
    if (active_->training().size() == 1)
      throw NonFinite(loss_text(loss, static_cast<std::size_t>(m), batch) +
                          (loss.size() > 1 ? ", and no other model trains" : ""),
                      batch);
    stop({m, batch, true});
  }
}

void Trainer::stop(const StoppedModel& model) {
  if (!active_->stop(model.model)) return;
  progress_.stopped.push_back(model);
  std::ranges::sort(progress_.stopped, {}, &StoppedModel::model);
  tell(&Callbacks::stopped, model);
}

// Stops the models whose state in a copy of it has become infinite or NaN before their losses did.
void Trainer::stop_not_finite(const StateDict& state) {
  const std::vector<StateDict> models = unstack_states(state, options_.strategy.models);
  for (const int m : active_->training())
    if (!std::ranges::all_of(models[static_cast<std::size_t>(m)],
                             [](const auto& entry) { return all_finite(entry.second); })) {
      if (active_->training().size() == 1)
        throw NonFinite(fmt::format("the weights are not finite after {}", counted(progress_.batch, "batch")),
                        progress_.batch);
      stop({m, progress_.batch, true});
    }
}

// Stops the models whose outputs for the test set are not finite. If no other trains, the run ends.
void Trainer::stop_without_accuracy() {
  for (const int m : active_->training_in_session())
    if (std::isnan(accuracy_[static_cast<std::size_t>(m)])) {
      if (active_->training().size() == 1)
        throw NonFinite(
            fmt::format(
                "the trained network of model {} gives values that are not finite, and no other model trains",
                m),
            progress_.batch);
      stop({m, progress_.batch, true});
    }
}

// After an epoch; the main rank knows the accuracies. Returns whether it stopped a model.
bool Trainer::prune() {
  if (!is_main()) return false;
  const std::vector<int> models = below_median(progress_.accuracies, active_->training());
  for (const int m : models) stop({m, progress_.batch, false});
  return !models.empty();
}

// All ranks mask the models that the main one has stopped.
void Trainer::agree_on_stopped() {
  if (!options_.spare || !options_.strategy.masks_models) return;
  for (int m = 0; m < options_.strategy.models; ++m) {
    const bool trains = std::ranges::binary_search(active_->training(), m);
    if (share(trains ? 1 : 0, main_rank()) == 0) active_->stop(m);
  }
}

// Makes a Session for the models of a turn that still train, unless it has them; the states of the others
// wait. Returns whether it is another Session. On several ranks models that have stopped stay in it, masked.
bool Trainer::enter(int turn) {
  if (options_.strategy.ranks() > 1) return false;
  const std::vector<int> before = active_->in_session();
  if (!active_->enter(turn)) return false;
  link_->send();
  std::vector<StateDict> left = unstack_states(session_->state(), std::ssize(before)), now;
  link_->disconnect();
  for (std::size_t i = 0; i < before.size(); ++i) waiting_[before[i]] = std::move(left[i]);
  for (const int m : active_->in_session()) now.push_back(waiting_state(m));
  const std::lock_guard lock(renewing_);
  session_->throw_if_stopped();
  earlier_ = peaks();
  tuning_.reset();
  session_.reset();
  test_.reset();
  feed_.reset();
  trains_last_ = evaluates_ = {};
  prepare();
  session_->load(stack_all(std::move(now)));
  for (const int m : active_->in_session()) waiting_.erase(m);
  link_models();
  feed_->start(progress_.batch, length_.total);
  return true;
}

// With what its module was given since it began to wait.
StateDict Trainer::waiting_state(int model) const {
  StateDict state = waiting_.at(model);
  if (are_linked())
    for (const auto& [path, p] : models_[static_cast<std::size_t>(model)].module->named_parameters())
      if (const auto found = state.find(path); found != state.end()) found->second = p->tensor;
  return state;
}

// Trains up to batch `end`, in one turn after the other. If the run is to end early, models would have
// trained different numbers of batches: then all go back to where they were, and it returns false.
bool Trainer::train_in_turns(std::int64_t end) {
  link_->send();
  const TrainProgress before = progress_;
  const StateDict state = of_all_models(session_->state());
  int last = 0;
  for (int turn = 0; turn < active_->turns(); ++turn)
    if (!active_->training(turn).empty()) last = turn;
  accuracy_.clear();
  for (int turn = 0; turn <= last; ++turn) {
    const std::vector<int> models = active_->training(turn);
    if (models.empty()) continue;
    progress_.batch = before.batch;
    tell(&Callbacks::begin_turn, models);
    if (!enter(turn)) feed_->start(before.batch, length_.total);
    is_last_turn_ = turn == last;
    limit_.begin_at(before.batch);
    timer_.begin_turn();
    if (limit_.end() != RunLimit::kNone || !go_on(end)) {
      const std::int64_t saved = saved_;
      load(state, before);
      saved_ = saved;
      return false;
    }
    if (options_.test && at_epoch_end()) evaluate_session();
  }
  if (options_.test && at_epoch_end()) evaluated_ = progress_.batch;
  return true;
}

void Trainer::with_session(const std::function<void(Session&)>& use) {
  const std::lock_guard lock(renewing_);
  if (session_) use(*session_);
}

// The states of the models in the session, with those that wait.
StateDict Trainer::of_all_models(StateDict in_session) const {
  if (active_->are_all_in_session()) return in_session;
  std::vector<StateDict> some = unstack_states(in_session, active_->count()), all;
  auto next = some.begin();
  for (int m = 0; m < options_.strategy.models; ++m)
    all.push_back(waiting_.contains(m) ? waiting_state(m) : std::move(*next++));
  return stack_all(std::move(all));
}

// The part of the models in the session.
StateDict Trainer::in_session(const StateDict& of_all) const {
  if (active_->are_all_in_session()) return of_all;
  return known_to_session(
      stack_states(active_->in_session(unstack_states(of_all, options_.strategy.models))));
}

// Without what only the optimizers of models outside the session keep.
StateDict Trainer::known_to_session(StateDict state) const {
  std::erase_if(state, [&](const auto& entry) {
    const std::string& path = entry.first;
    return path.starts_with(kOptimizerPath) && session_->find_state(path) < 0 &&
           std::ranges::any_of(options_.strategy.each,
                               [&](const ModelOptions& model) { return keeps(model.optimizer, path); });
  });
  return state;
}

// Gives all models their states, in the session or where they wait, and their modules the parameters.
void Trainer::set_state(const StateDict& of_all) {
  const StateDict here = in_session(of_all);
  session_->load(here);
  link_->set(here);
  if (active_->are_all_in_session()) return;
  std::vector<StateDict> all = unstack_states(of_all, options_.strategy.models);
  for (int m = 0; m < options_.strategy.models; ++m) {
    if (std::ranges::binary_search(active_->in_session(), m)) continue;
    StateDict& state = waiting_[m] = std::move(all[static_cast<std::size_t>(m)]);
    if (!are_linked()) continue;
    StateDict of_module = state;
    std::erase_if(of_module, [](const auto& entry) { return entry.first.starts_with(kOptimizerPath); });
    models_[static_cast<std::size_t>(m)].module->load(of_module);
  }
}

Trainer::Peaks Trainer::peaks() const {
  return {std::max(earlier_.planned, session_->planned_peak()),
          std::max(earlier_.live, session_->live_peak()),
          std::max(earlier_.executed, session_->executed_peak(main_rank()))};
}

}  // namespace tandem
