// Which of a Trainer's models still train: those that diverge or are pruned are masked, and then left out.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/train/all_reduce_tuning.h>
#include <tandem/train/feed.h>
#include <tandem/train/state_link.h>
#include <tandem/train/trainer.h>

namespace tandem {
using namespace engine;

// A NaN's sign has no meaning.
std::string Trainer::loss_text(const std::vector<double>& loss, std::size_t m, std::int64_t batch) {
  return fmt::format("the loss{} is {} at step {}", loss.size() > 1 ? fmt::format(" of model {}", m) : "",
                     std::isnan(loss[m]) ? "nan" : fmt::format("{}", loss[m]), batch);
}

// Masks the models whose losses are not finite; the last one ends the run.
void Trainer::stop_diverged(std::int64_t batch, const std::vector<double>& loss) {
  for (const int m : active_->training()) {
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
  for (const int m : active_->training())
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

// Makes a smaller Session without the models that have stopped. On several ranks they stay in it, masked.
void Trainer::leave_out_stopped() {
  if (options_.strategy.ranks() > 1) return;
  const std::vector<int> before = active_->in_session();
  if (!active_->leave_out()) return;
  link_->send();
  std::vector<StateDict> models = unstack_states(session_->state(), std::ssize(before)), kept;
  link_->disconnect();
  for (std::size_t i = 0; i < before.size(); ++i)
    if (std::ranges::binary_search(active_->in_session(), before[i]))
      kept.push_back(std::move(models[i]));
    else
      left_out_[before[i]] = std::move(models[i]);
  const std::lock_guard lock(renewing_);
  tuning_.reset();
  session_.reset();
  test_.reset();
  feed_.reset();
  trains_last_ = evaluates_ = {};
  prepare();
  session_->load(stack_states(kept));
  link_models();
  feed_->start(progress_.batch, length_.total);
}

void Trainer::with_session(const std::function<void(Session&)>& use) {
  const std::lock_guard lock(renewing_);
  use(*session_);
}

// The states of the models in the session, with those of the models that are left out.
StateDict Trainer::of_all_models(StateDict in_session) const {
  if (left_out_.empty()) return in_session;
  std::vector<StateDict> some = unstack_states(in_session, active_->count()), all;
  auto next = some.begin();
  for (int m = 0; m < options_.strategy.models; ++m)
    all.push_back(left_out_.contains(m) ? left_out_.at(m) : std::move(*next++));
  return stack_states(all);
}

// The part of the models in the session; the rest is kept for checkpoints.
StateDict Trainer::in_session(const StateDict& of_all) {
  if (left_out_.empty()) return of_all;
  const std::vector<StateDict> all = unstack_states(of_all, options_.strategy.models);
  for (auto& [m, state] : left_out_) state = all[static_cast<std::size_t>(m)];
  return stack_states(active_->in_session(all));
}

}  // namespace tandem
