// The Programs of a Trainer, and what feeds them.
#include <algorithm>
#include <limits>
#include <optional>

#include <tandem/dist/thread_comm.h>
#include <tandem/ops/varied.h>
#include <tandem/plan/build.h>
#include <tandem/plan/dense_tables.h>
#include <tandem/train/all_reduce_tuning.h>
#include <tandem/train/feed.h>
#include <tandem/train/model_inputs.h>
#include <tandem/train/trainer.h>

namespace tandem {
using namespace engine;
namespace {

// The largest number if the product overflows: such a run ends for another reason.
std::int64_t batches_of(std::int64_t epochs, std::int64_t per_epoch) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  return epochs > kMost / per_epoch ? kMost : epochs * per_epoch;
}

// Which part of a batch this process needs: all of it, or if the process is a rank, that rank's part.
LoaderOptions loader_options(const TrainerOptions& o, std::int64_t batch_size, std::int64_t max_lag) {
  LoaderOptions l{.batch_size = batch_size,
                  .drop_last = o.drop_last,
                  .workers = o.workers,
                  .buffers = 2 * o.workers + static_cast<int>(max_lag) + o.strategy.stages};
  if (!o.spare) return l;
  const Strategy& s = o.strategy;
  const int device = o.spare->rank() % s.devices();
  l.replica = o.spare->rank() / s.devices();
  l.replicas = o.strategy.replicas;
  l.labels = device == s.device_of(0) && device == s.device_of(s.stages - 1);
  if (device != s.device_of(0)) l.workers = 0;  // labels cost next to nothing
  return l;
}

}  // namespace

// Makes the Session, with its Programs and what feeds them, for the models that it holds.
void Trainer::prepare() {
  strategy_ = active_->in_session(options_.strategy);
  const Strategy& s = strategy_;
  Program first = program(options_.batch_size, true);
  if (!s.known_memory_plans.empty() && active_->are_whole_turn())
    repeated_peak_ = std::max(repeated_peak_, planned_peak(first));
  feed_ = std::make_unique<TrainFeed>(
      data(), loader_options(options_, options_.batch_size, first.max_lag), s.microbatches,
      active_->in_session(options_.seeds),
      [this](std::size_t m, std::int64_t batch) {
        return rate(static_cast<std::size_t>(active_->in_session()[m]), batch);
      },
      [this](std::int64_t batch, const std::vector<double>& loss) { arrived(batch, loss); },
      [this](std::int64_t batch) {
        if (!options_.strategy.gradients.loss_scale)  // overflows are normal with a loss scale
          recovery_.update_skipped(batch);
      },
      [this](const HostResult& result) { measured(result); });
  length_.per_epoch = feed_->batches_per_epoch();
  length_.total = options_.epochs > 0 ? batches_of(options_.epochs, length_.per_epoch) : options_.batches;
  if (options_.batches > 0) length_.total = std::min(length_.total, options_.batches);
  feed_->set_active([this] { return active_->active(); });
  if (options_.comms.empty()) options_.comms = thread_comms(s.ranks());  // a Session takes them
  session_ =
      std::make_unique<Session>(std::move(first), std::move(options_.comms), *feed_,
                                SessionOptions{.spans = options_.spans, .memory_budget = s.memory_budget});
  if (options_.test) add_evaluation();
  if (const std::int64_t last = samples_of(length_.per_epoch - 1); last != options_.batch_size)
    trains_last_ = session_->add(program(last, true), *feed_);
  add_tuning();
}

void Trainer::require_session() const {
  if (!session_) throw Error("Trainer: it has no Session, since another one could not be made");
}

// Builds the Programs of all turns, so that one that is impossible is refused before anything is trained.
void Trainer::plan_turns() {
  for (int turn = active_->turns() - 1; turn >= 0 && active_->turns() > 1; --turn) {
    active_->enter(turn);
    strategy_ = active_->in_session(options_.strategy);
    program(options_.batch_size, true);
  }
}

// Each model's own, or what all have in common.
std::vector<DatasetPtr> Trainer::data() const {
  if (!own_data_) return {train_};
  std::vector<DatasetPtr> all;
  for (const ArrayModel& model : active_->in_session(models_)) all.push_back(model.data);
  return all;
}

// For `samples` samples of each model.
Graph Trainer::forward(std::int64_t samples, bool training) const {
  std::vector<Graph> graphs;
  for (const ArrayModel& model : models_.size() > 1 ? active_->in_session(models_) : models_)
    graphs.push_back(trace_forward(*model.module, training ? *model.data : *options_.test, model.objective,
                                   samples, training, training && own_data_));
  return unify(graphs);
}

// The Program for a global batch of `batch_size` samples.
Program Trainer::program(std::int64_t batch_size, bool training) {
  if (active_->turns() == 1) return built(batch_size, training);
  const ProgramKey key{active_->in_session(), batch_size, training};
  if (const auto known = programs_.find(key); known != programs_.end()) return known->second;
  return programs_.emplace(key, built(batch_size, training)).first->second;
}

Program Trainer::built(std::int64_t batch_size, bool training) const {
  Strategy s = strategy_;
  if (const bool is_known = batch_size == options_.batch_size && active_->are_whole_turn();
      !is_known && !s.known_memory_plans.empty()) {  // the plans are for other batches or models
    s.known_memory_plans.clear();
    if (training && s.memory_budget == 0) s.memory_budget = repeated_peak_;
  }
  const std::int64_t samples = batch_size / s.replicas / (training ? s.microbatches : 1);
  return build(forward(samples, training), training ? s : for_evaluation(s));
}

void Trainer::add_tuning() {
  const Strategy& s = strategy_;
  AllReduceOptions& o = options_.all_reduces;
  if (o.policy == "auto") o.policy = length_.total >= kAutoBatches ? "libra" : "";
  if (o.policy.empty() || s.replicas == 1) return;
  if (options_.spans > 0) o.drift.reset();  // the user gets what is measured
  const std::int64_t samples = options_.batch_size / s.replicas;
  const Graph forward = this->forward(samples / s.microbatches, true);
  Comm* const processes = options_.spare.get();
  tuning_ = std::make_unique<AllReduceTuning>(
      *session_, *feed_,
      [forward, s](const std::vector<FusionGroup>& groups) {
        Strategy with = s;
        with.fusion_groups = groups;
        return build(forward, with);
      },
      all_reduce_key(forward, s, static_cast<double>(samples), processes, main_rank()), std::move(o),
      length_.total, RankTalk(processes, main_rank()));
}

std::vector<std::string> Trainer::dense_tables() const {
  const Strategy& s = strategy_;
  return engine::dense_tables(forward(options_.batch_size / s.replicas / s.microbatches, true), s);
}

bool Trainer::all_reduces_are_planned() const { return !tuning_ || tuning_->is_planned(); }

std::string Trainer::why_saved_all_reduces_are_unfit() const { return tuning_ ? tuning_->why_unfit() : ""; }

ProgramHandle Trainer::training_program() const { return tuning_ ? tuning_->program() : ProgramHandle(); }

// Evaluates batches of the size of training's micro-batches, or smaller ones if these exceed the memory
// budget.
void Trainer::add_evaluation() {
  std::int64_t samples = options_.batch_size / options_.strategy.microbatches;
  std::optional<Program> evaluation;
  while (!evaluation) try {
      evaluation = program(samples, false);
    } catch (const BudgetTooSmall&) {
      const std::int64_t half = samples / 2 / strategy_.replicas * strategy_.replicas;
      if (half == 0) throw;
      samples = half;
    }
  test_ = std::make_unique<TestFeed>(options_.test, loader_options(options_, samples, evaluation->max_lag),
                                     active_->in_session(options_.seeds));
  if (masks()) test_->note_non_finite();
  evaluation->purpose = "evaluation";
  evaluates_ = session_->add(std::move(*evaluation), *test_);
}

}  // namespace tandem
