#include <tandem/train/trainer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/graph/state_dict.h>
#include <tandem/core/runtime/state_memory.h>
#include <tandem/plan/build.h>
#include <tandem/plan/network_layers.h>
#include <tandem/train/all_reduce_tuning.h>
#include <tandem/train/feed.h>
#include <tandem/train/model_inputs.h>
#include <tandem/train/non_finite.h>
#include <tandem/train/state_link.h>
#include <tandem/train/train_checkpoint.h>

namespace tandem {
using namespace engine;
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kDecisions = 1;  // a channel of the spare Comm

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// One model, which stands for all that the strategy has.
ModelArray of_one(nn::Module& model, const TrainerOptions& o) {
  return {{.module = &model, .objective = o.objective}};
}

// The options with what the models have of their own.
TrainerOptions with(TrainerOptions o, const ModelArray& models) {
  if (models.empty() || std::ranges::any_of(models, [](const ArrayModel& m) { return !m.module; }))
    throw Error("Trainer: a ModelArray needs at least one model, and a module for each");
  for (std::size_t a = 0; a < models.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (models[a].module == models[b].module)
        throw Error(
            "Trainer: one module is given twice: models that train side by side must be different objects");
  Strategy& s = o.strategy;
  s.models = static_cast<int>(models.size());
  s.optimizer = models[0].options.optimizer;
  s.each.clear();
  o.lr.clear();
  o.seeds.clear();
  for (const ArrayModel& model : models) {
    s.each.push_back(model.options);
    o.lr.push_back(model.lr);
    o.seeds.push_back(model.seed);
  }
  return o;
}

}  // namespace

Trainer::Trainer(nn::Module& model, DatasetPtr train, TrainerOptions options)
    : Trainer{of_one(model, options), std::move(train), std::move(options), Settled{}} {}  // in this order

Trainer::Trainer(ModelArray models, DatasetPtr train, TrainerOptions options)
    : Trainer(models, std::move(train), with(std::move(options), models), Settled{}) {}

Trainer::Trainer(ModelArray models, DatasetPtr train, TrainerOptions options, Settled)
    : models_(std::move(models)),
      train_(std::move(train)),
      options_(std::move(options)),
      recovery_(options_.on_non_finite, options_.max_rollbacks, *this),
      link_(std::make_shared<StateLink>()) {
  check(options_, train_.get());
  for (ArrayModel& model : models_) {
    if (model.data && (model.data->type() != train_->type() || model.data->size() != train_->size() ||
                       model.data->labels_per_sample() != train_->labels_per_sample()))
      throw Error(
          "Trainer: a model's own data differ from the Trainer's in type, size, or labels per sample");
    own_data_ = own_data_ || model.data;
  }
  for (ArrayModel& model : models_)
    if (!model.data) model.data = train_;
  Strategy& s = options_.strategy;
  active_ = std::make_unique<ActiveModels>(s.models, options_.turns);
  if (options_.on_non_finite == OnNonFinite::skip) s.gradients.skip_non_finite = true;
  if (options_.on_non_finite == OnNonFinite::mask || options_.prunes) s.masks_models = s.models > 1;
  if (s.cuts.empty() && s.stages > 1)  // also for evaluation
    s.cuts = balanced_cuts(forward(options_.batch_size / s.replicas / s.microbatches, true), s);
  plan_turns();
  prepare();
  if (options_.log) std::ranges::for_each(dense_tables(), options_.log);
  for (std::size_t m = 0; m < options_.lr.size(); ++m) {
    const ArrayModel& model = models_[models_.size() > 1 ? m : 0];
    lr_schedules_.push_back(model.lr_schedule      ? model.lr_schedule(length_)
                            : options_.lr_schedule ? options_.lr_schedule(length_, options_.lr[m])
                                                   : constant_lr());
    if (!lr_schedules_.back()) throw Error("Trainer: options.lr_schedule gives an empty function");
  }
  if (std::ssize(models_) != s.models) return;  // `load` sets the state
  std::vector<StateDict> states;
  for (const ArrayModel& model : models_) states.push_back(model.module->state());
  set_state(stack_states(states));
  link_models();
}

Trainer::~Trainer() { link_->disconnect(); }

void Trainer::link_models() {
  link_ = std::make_shared<StateLink>();
  if (!are_linked()) return;
  std::map<std::string, Tensors> parameters;
  for (const ArrayModel& model : active_->in_session(models_))
    for (const auto& [path, p] : model.module->named_parameters()) parameters[path].push_back(p->tensor);
  for (const auto& [path, tensors] : parameters) link_->add(tensors);
  link_->connect(session_.get());
}

std::int64_t Trainer::samples_of(std::int64_t batch) const { return feed_->rows(batch); }

double Trainer::rate(std::size_t model, std::int64_t batch) const {
  const double rate = options_.lr[model] * lr_schedules_[model](batch);
  check_rate(rate);
  return rate;
}

void Trainer::load(const StateDict& state, TrainProgress progress) {
  if (progress.batch < 0) throw Error("Trainer: a run cannot continue before its first batch");
  active_->restart(progress.stopped);
  set_state(state);
  link_->connect(session_.get());
  progress_ = std::move(progress);
  limit_.begin_at(progress_.batch);
  if (active_->turns() == 1) enter(0);
  evaluated_ = saved_ = -1;
}

void Trainer::load(const Checkpoint& checkpoint) {
  const int models = options_.strategy.models;
  TrainProgress progress = read_progress(checkpoint, models);
  const auto state = read_state(*models_[0].module, checkpoint, models);
  if (progress.batch > length_.total)
    throw Error(fmt::format(
        "the checkpoint '{}': {} are trained already, and the run ends after {}; raise epochs or batches",
        checkpoint.path, counted(progress.batch, "batch"), length_.total));
  try {
    check_state(session_->program(), in_session(state), /*exactly=*/true);
  } catch (const Error& e) {
    throw Error(fmt::format(
        "the checkpoint '{}' does not fit this Trainer: {}; give the options that it was saved with, or begin "
        "from only its weights",
        checkpoint.path, e.what()));
  }
  load(state, std::move(progress));
  saved_ = progress_.batch;
}

EpochResult Trainer::fit() try {
  require_session();
  stopping_ = ended_early_ = false;
  tell(&Callbacks::begin);
  feed_->start(progress_.batch, length_.total);
  recovery_.keep();
  bool ends = agree_to_end();
  for (bool first = true; progress_.batch < length_.total && !ends; first = false) {
    if (first || at_epoch_end()) begin_epoch();
    const std::int64_t before = progress_.batch;
    const bool ends_before = !train_section(next_drain());
    if (recovery_.act(progress_.batch)) continue;  // went back
    const bool ends_here = ends_before || agree_to_end_here();
    bool saves = false;
    if (at_epoch_end() && progress_.batch > before) {
      saves = end_epoch() && options_.checkpoint_every > 0;  // a pruned model as it is now
      ends = agree_to_end();
    }
    if (ends_here) end_here();
    if (saves || checkpoint_is_due(ends)) {
      save();
      recovery_.keep();
    }
    if (at_epoch_end() && !ends && progress_.batch < length_.total && active_->turns() == 1) enter(0);
  }
  if (options_.test) evaluate();
  give_weights_to_model();
  tell(&Callbacks::end, result(timer_.run()));
  return result(timer_.run());
} catch (const NonFinite& e) {
  if (options_.on_non_finite != OnNonFinite::stop) throw;
  const std::string where = where_non_finite(e.batch, session_->remains(main_rank(), options_.spare.get()));
  throw NonFinite(fmt::format("{}{}{}; lower the learning rate, or look at the data", e.what(),
                              where.empty() ? "" : "; ", where),
                  e.batch);
}

// The schedule drains after every epoch and for checkpoints, at batches that do not depend on where the run
// began.
std::int64_t Trainer::next_drain() const {
  const std::int64_t batch = progress_.batch, every = options_.checkpoint_every;
  const std::int64_t end = std::min(length_.total, (batch / length_.per_epoch + 1) * length_.per_epoch);
  return every > 0 ? std::min(end, (batch / every + 1) * every) : end;
}

bool Trainer::go_on(std::int64_t end) {
  while (progress_.batch < end) {
    const std::int64_t drain = std::min(end, next_drain());
    const std::int64_t left_out = recovery_.next_left_out(progress_.batch, drain);
    run_section(left_out);
    if (progress_.batch < left_out) return false;  // the run ends early
    if (left_out < drain) feed_->start(++progress_.batch, length_.total);
  }
  return true;
}

// Trains up to batch `end`. Returns false if the models have gone back to where they were, and the run ends.
bool Trainer::train_section(std::int64_t end) {
  if (active_->turns() > 1) return train_in_turns(end);
  go_on(end);
  return true;
}

// With several batches in flight, what is learned depends on when the schedule drains. So its all-reduces are
// planned with batches that are forgotten: they come again.
void Trainer::rehearse(std::int64_t batch, std::int64_t end) {
  const auto before = session_->snapshot();
  timer_.pause();
  try {
    const TrainFeed::IgnoresResults ignores(*feed_);
    while (!tuning_->is_planned()) {
      feed_->start(batch, length_.total);
      tuning_->run(batch, end - batch);
    }
  } catch (...) {
    session_->restore(before);
    throw;
  }
  feed_->start(batch, length_.total);
  session_->restore(before);
  timer_.go_on();
}

// Trains whole batches, some of which may also plan the all-reduces. Returns the batch before which it ended.
std::int64_t Trainer::train(std::int64_t batch, std::int64_t end) {
  constexpr std::int64_t kRehearsed = 16;  // batches, at most; the run does not end before they are trained
  if (!tuning_) batch += session_->run(batch, end - batch, {}, &limit_);
  while (tuning_ && batch < end) {
    const bool was_planned = tuning_->is_planned();
    if (!was_planned && session_->program().max_lag > 0) {
      const std::int64_t claimed = limit_.claim(std::min(end, batch + kRehearsed));
      if (claimed <= batch) break;  // the run ends here
      rehearse(batch, claimed);
    } else {
      const std::int64_t ran = tuning_->run(batch, end - batch, &limit_);
      batch += ran;
      // With one plan only, it runs nothing, and is planned.
      if (ran == 0 && (was_planned || !tuning_->is_planned())) break;  // the run ends here
    }
    if (was_planned || !tuning_->is_planned()) continue;
    session_->measure(options_.spans, tuning_->program());
    tell(&Callbacks::all_reduces_planned, tuning_->report());
  }
  link_->changed(session_->written());
  return batch;
}

// Runs batches of one epoch. A short last batch has its own Program.
void Trainer::run_section(std::int64_t end) {
  if (end == progress_.batch) return;
  const std::int64_t whole = end - (samples_of(end - 1) < options_.batch_size);
  timer_.go_on();
  link_->send();
  std::int64_t batch = progress_.batch;
  if (whole > batch) batch = train(batch, whole);
  if (batch == whole && whole < end) {
    batch += session_->run(whole, 1, trains_last_, &limit_);
    link_->changed(session_->written(trains_last_));
  }
  timer_.pause();
  progress_.batch = batch;
}

void Trainer::arrived(std::int64_t batch, const std::vector<double>& of_session) {
  const std::vector<double> loss = active_->of_all(of_session, kNone);
  if (options_.on_non_finite == OnNonFinite::mask) stop_diverged(batch, loss);
  const bool goes_on = options_.on_non_finite != OnNonFinite::stop;
  const std::vector<int> training = active_->training_in_session();
  const auto is_finite = [&](int m) { return std::isfinite(loss[static_cast<std::size_t>(m)]); };
  if (goes_on && !std::ranges::all_of(training, is_finite)) recovery_.loss_not_finite(batch);
  if (recovery_.ignores_results()) return;
  const std::int64_t samples = samples_of(batch);
  BatchResult b{
      .batch = batch, .epoch = batch / length_.per_epoch, .samples = samples, .loss = loss, .lr = {}};
  b.seconds = timer_.result(samples, is_last_turn_);
  b.models = active_->in_session();
  b.is_last_turn = is_last_turn_;
  std::vector<char> counts(loss.size(), 0);
  for (const int m : training) counts[static_cast<std::size_t>(m)] = 1;
  for (std::size_t m = 0; m < loss.size(); ++m) {
    b.lr.push_back(rate(m, batch));
    if (!counts[m] || std::isfinite(loss[m]) || goes_on) continue;
    throw NonFinite(loss_text(loss, m, batch), batch);
  }
  progress_.losses.add(loss, static_cast<double>(b.samples) / static_cast<double>(options_.batch_size),
                       counts);
  if (options_.strategy.measure_prediction.empty()) return tell(&Callbacks::batch, b);
  const std::lock_guard lock(measuring_);
  unmeasured_.push_back(std::move(b));
  tell_measured_batches();
}

void Trainer::measured(const HostResult& result) {
  if (recovery_.ignores_results()) return;
  const Strategy& s = options_.strategy;
  const std::lock_guard lock(measuring_);
  measured_[result.batch] = prediction_errors(result, s.measure_prediction, active_->count());
  tell_measured_batches();
}

// In order of batches.
void Trainer::tell_measured_batches() {
  while (!unmeasured_.empty()) {
    BatchResult& b = unmeasured_.front();
    const auto found = measured_.find(b.batch);
    if (found == measured_.end()) return;
    b.prediction = std::move(found->second);
    measured_.erase(found);
    tell(&Callbacks::batch, b);
    unmeasured_.pop_front();
  }
}

std::vector<double> Trainer::evaluate() {
  require_session();
  if (!test_) throw Error("Trainer: there is no test set to evaluate on");
  if (link_->send()) evaluated_ = -1;  // the weights were assigned since
  if (evaluated_ == progress_.batch) return accuracy_;
  accuracy_.clear();
  for (int turn = 0; turn < active_->turns(); ++turn) {
    if (active_->turns() > 1) enter(turn);
    if (active_->turns() == 1 || !active_->training(turn).empty()) evaluate_session();
  }
  evaluated_ = progress_.batch;
  return accuracy_;
}

// Sets the accuracies of the models in the session.
void Trainer::evaluate_session() {
  tell(&Callbacks::begin_evaluation);
  test_->start(active_->active());
  link_->send();  // what the callback assigned
  session_->run(0, test_->batches(), evaluates_);
  const std::vector<double> measured = test_->accuracy();
  if (!is_main() || measured.empty()) return;
  accuracy_.resize(static_cast<std::size_t>(options_.strategy.models), kNone);
  for (std::size_t i = 0; i < measured.size(); ++i)
    accuracy_[static_cast<std::size_t>(active_->in_session()[i])] = measured[i];
  if (masks()) stop_without_accuracy();
}

// Begins an epoch, or continues one.
void Trainer::begin_epoch() {
  timer_.begin_epoch();
  if (at_epoch_end()) progress_.losses.clear();
  tell(&Callbacks::begin_epoch, progress_.batch / length_.per_epoch);
}

// Returns whether models were pruned.
bool Trainer::end_epoch() {
  if (options_.test) evaluate();
  if (is_main()) {
    if (!accuracy_.empty() && mean_accuracy() > progress_.best_accuracy) {
      progress_.best_accuracy = mean_accuracy();
      progress_.epochs_since_best = 0;
    } else {
      ++progress_.epochs_since_best;
    }
    progress_.accuracies.resize(accuracy_.size());
    const std::vector<double> epoch_loss = progress_.losses.mean();
    for (std::size_t m = 0; m < accuracy_.size(); ++m)
      if (std::isfinite(accuracy_[m])) {
        TrainProgress::Accuracies& a = progress_.accuracies[m];
        a.best = std::max(a.best, accuracy_[m]);
        a.last = accuracy_[m];
        a.loss = epoch_loss.empty() || !std::isfinite(epoch_loss[m]) ? a.loss : epoch_loss[m];
        a.sum += accuracy_[m];
        ++a.epochs;
      }
    tell(&Callbacks::end_epoch, result(timer_.epoch()));
  }
  const bool pruned = options_.prunes && share(prune() ? 1 : 0, main_rank()) != 0;
  agree_on_stopped();
  return pruned;
}

// Of the models that have one.
double Trainer::mean_accuracy() const {
  std::vector<double> values = accuracy_;
  std::erase_if(values, [](double a) { return std::isnan(a); });
  return values.empty() ? 0 : mean(values);
}

bool Trainer::checkpoint_is_due(bool ends) const {
  const std::int64_t every = options_.checkpoint_every;
  return every > 0 && (ends || progress_.batch == length_.total || progress_.batch % every == 0);
}

// All ranks send their state to the main one. Weights that are not finite are never saved, because no run can
// continue from them. With rollback, the Recovery has checked them already.
void Trainer::save() {
  tell(&Callbacks::before_checkpoint);
  link_->send();  // what callbacks assigned
  const bool looks_at_each = masks();
  if (!looks_at_each && options_.on_non_finite != OnNonFinite::rollback && !is_finite()) {
    const std::string what =
        fmt::format("the weights are not finite after {}", counted(progress_.batch, "batch"));
    if (!is_main()) throw Aborted(what);
    throw NonFinite(what, progress_.batch);
  }
  copy_ = of_all_models(
      session_->state(main_rank(), active_->are_all_in_session() ? std::move(copy_) : StateDict()));
  if (looks_at_each && is_main()) stop_not_finite(copy_);
  CheckpointResult checkpoint{progress_, copy_, {}};
  if (options_.score_checkpoints && options_.test) checkpoint.accuracy = evaluate();
  tell(&Callbacks::checkpoint, checkpoint);
  saved_ = progress_.batch;
}

void Trainer::give_weights_to_model() {
  if (!options_.spare) return;  // they are linked
  auto state = session_->state(main_rank());
  if (!is_main() || options_.strategy.models > 1) return;
  std::erase_if(state, [](const auto& s) { return s.first.starts_with(kOptimizerPath); });
  models_[0].module->load(state);
}

void Trainer::end_at(std::int64_t batch, const std::string& reason) {
  const std::lock_guard lock(ending_);
  why_it_ends_ = reason;
  limit_.end_at(batch);
}

// The main rank decides: others may have heard earlier, or later, where the run ends. All have run the same
// batches.
bool Trainer::agree_to_end_here() { return share(limit_.end() <= progress_.batch, main_rank()) != 0; }

void Trainer::end_here() {
  if (options_.checkpoint_every > 0 && saved_ != progress_.batch) save();
  limit_.end_at(RunLimit::kNone);
  ended_early_ = true;
  const std::lock_guard lock(ending_);
  throw Aborted(why_it_ends_);
}

// The main rank decides.
bool Trainer::agree_to_end() { return share(stopping_ || finished(), main_rank()) != 0; }

bool Trainer::finished() const {
  const bool patient = options_.patience == 0 || progress_.epochs_since_best < options_.patience;
  return progress_.batch >= length_.total || !patient;
}

// Gives all ranks the value of rank `root`.
std::int64_t Trainer::share(std::int64_t value, int root) const {
  Comm* const comm = options_.spare.get();
  if (!comm) return value;
  if (comm->rank() != root) comm->receive(&value, sizeof value, root, kDecisions);
  for (int r = 0; comm->rank() == root && r < comm->size(); ++r)
    if (r != root) comm->send(&value, sizeof value, r, kDecisions);
  return value;
}

EpochResult Trainer::result(const BatchTimer::Total& time) const {
  EpochResult r;
  r.batches = progress_.batch;
  r.epoch = r.batches > 0 ? (r.batches - 1) / length_.per_epoch : 0;
  r.loss = progress_.losses.mean();
  for (std::size_t m = 0; m < lr_schedules_.size(); ++m)
    r.lr.push_back(rate(m, std::max<std::int64_t>(0, r.batches - 1)));
  if (evaluated_ == r.batches) r.accuracy = accuracy_;
  if (time.batches > 0) r.step_ms = 1e3 * time.seconds / static_cast<double>(time.batches);
  if (time.seconds > 0) r.samples_per_second = static_cast<double>(time.samples) / time.seconds;
  r.losses_not_finite = progress_.losses.not_finite;
  return r;
}

}  // namespace tandem
