#include "training_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/checksum.h>
#include <tandem/dist/launch.h>
#include <tandem/engine.h>
#include <tandem/pipeline/schedule_file.h>
#include <tandem/pipeline/stages.h>
#include <tandem/plan/measured_layers.h>
#include <tandem/plan/network_layers.h>
#include <tandem/plan/plan_file.h>

#include "all_reduce_report.h"
#include "flags.h"
#include "log.h"
#include "long_work.h"
#include "model_texts.h"
#include "output_file.h"
#include "own_file.h"
#include "pipeline_options.h"
#include "prediction_means.h"
#include "progress_line.h"
#include "simulation.h"
#include "stage_report.h"
#include "sweep.h"
#include "trace_file.h"
#include "training_memory.h"
#include "typed_schedule.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr double kSilence = 5;              // seconds of planning
constexpr std::int64_t kManyImages = 1000;  // whose evaluation can take seconds

std::vector<int> powers_of_two(int most) {
  std::vector<int> powers;
  for (int p = 1; p <= most; p *= 2) powers.push_back(p);
  return powers;
}

std::string what_becomes_of(const NonFiniteBatch& b) {
  const std::string where = b.where.empty() ? "" : "; " + b.where;
  if (b.back_to < 0) return fmt::format("step {} is not finite: its update is skipped{}", b.batch, where);
  return fmt::format("step {} is not finite: the run goes back to step {} and {}{}", b.batch, b.back_to,
                     b.is_left_out ? "continues without it" : "ends early", where);
}

std::string what_becomes_of(const StoppedModel& m) {
  return m.diverged ? fmt::format("model {} has diverged at step {}: it stays as it is, and the others go on",
                                  m.model, m.batch)
                    : fmt::format("model {} is pruned after {}", m.model, counted(m.batch, "batch"));
}

// Of those that are numbers: a model that has diverged has none.
std::optional<double> mean(std::vector<double> values) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty()) return {};
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

bool has_bf16_instructions() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx512bf16") > 0;
#else
  return true;  // unknown
#endif
}

// What the run of a checkpoint measured of its all-reduces, if it did.
std::optional<AllReduceReport> measured_before(const Checkpoint& checkpoint) {
  namespace fs = std::filesystem;
  const fs::path file = fs::path(checkpoint.path).parent_path().parent_path() / kAllReduces;
  std::error_code none;
  if (!fs::exists(file, none)) return {};
  try {
    return read_all_reduces(file.string());
  } catch (const Error& e) {
    log_warning(fmt::format("the all-reduces are measured again: {}", e.what()));
    return {};
  }
}

}  // namespace

TrainingRun::TrainingRun(TrainOptions options, SignalWatch& signals, MpiSession* mpi, Adjust adjust)
    : options_(std::move(options)), signals_(signals), mpi_(mpi), adjust_(std::move(adjust)) {
  start_log("train_cifar", options_.log_level, is_main());
}

// Ranks meet before MPI ends, where nothing limits how long they wait for each other.
void TrainingRun::run(const CifarImages& images) {
  perform(images);
  meet();
}

void TrainingRun::claim() {
  const bool writes = is_main() && !options_.evaluate;
  if (writes) directory_ = RunDirectory(options_);  // locks it before find_start reads it
  start_ = find_start(options_);
  if (writes) directory_.claim(options_, start_.in_place);
  if (writes && !options_.simulate) model_runs_ = ModelRuns(options_, start_.in_place);
  before_end_.emplace(signals_, [this] {
    model_runs_.remove_empty_directories();
    directory_.remove_if_empty();
  });
  if (is_main()) require_replaceable("--trace", options_.trace, "trace");
}

void TrainingRun::perform(const CifarImages& images) {
  const CifarData data = data_of(options_, images);
  classes_ = data.classes;
  begin_.train_data = data.train_digest;
  begin_.test_data = data.test_digest;
  test_images_ = data.test ? data.test->size() : 0;
  if (!options_.profile.empty()) profile_ = Profile::read(options_.profile);
  begin_.schedule = checksum_of(engine::to_json(schedule_of(options_)));
  if (are_processes()) agree_on_arguments();
  if (are_processes() && !options_.simulate) meeting_ = mpi_->comm(comm_options());  // its watch watches all
  if (profile_ && !options_.simulate && !options_.evaluate) require_profile_of_this_machine();
  LongWork planning(is_main() ? log_info : LongWork::Tell(), kSilence);
  planning.begin("planning the run");
  make_networks();
  const std::int64_t samples = options_.batch_size / options_.ranks / options_.microbatches;
  const auto forward = [&](std::int64_t n) { return this->forward(data, n); };
  put_side_by_side(options_, forward(samples), is_main());
  const CoreShares cores = share_cores(options_, mpi_);
  Strategy strategy = strategy_of(options_, forward(1), cores.threads);
  if (strategy.stages > 1) cut(forward(samples), strategy);
  group_gradients(options_, forward(1), strategy);
  begin_.options = options_;
  begin_.options.threads = strategy.threads;
  begin_.arguments = to_json(begin_.options);
  agree_on_checkpoint();
  if (is_main() && strategy.memory_plan.empty() && !(strategy.swap.empty() && strategy.recompute.empty()))
    say_plan(forward(samples), strategy);
  if (!options_.evaluate)
    memory_ = plan_memory(options_, strategy, forward(samples), data, profile_,
                          RankTalk(meeting_.get(), main_rank()));
  if (strategy.stages > 1 || (!memory_.plans.empty() && memory_.are_of_all_turns))
    plan_ = plan_of_run(strategy, memory_.plans, memory_.turns);
  if (is_main() && strategy.stages > 1 && !options_.evaluate)
    say_stages(forward(samples), strategy, profile_);
  if (const std::string turns = why_devices_take_turns(engine::schedule_of(strategy));
      is_main() && !options_.evaluate && !turns.empty())
    log_warning(turns);
  if (const std::string twice = models_that_repeat_others(options_); is_main() && !twice.empty())
    log_warning(twice);
  if (options_.simulate) {
    if (is_main() && !memory_.turns.empty())
      log_info(fmt::format("simulates the first of {}", counted(std::ssize(memory_.turns), "turn")));
    const Strategy first = strategy_of_turn(strategy, memory_.turns, 0);
    if (is_main())
      simulate(with_first_models(options_, first.models), first, cores, forward(samples), data, profile_,
               directory_, plan_);
    return;
  }
  if (strategy.amp && !has_bf16_instructions())
    log_warning("this processor has no instructions for bf16, so bf16 takes longer than f32");
  TrainerOptions with = trainer_options(strategy, cores, data.test);
  if (adjust_) adjust_(with);
  const std::unique_ptr<Trainer> made = this->trainer(data, std::move(with));
  Trainer& trainer = *made;
  load(trainer);
  if (cores.available > available_cores())
    log_warning(
        fmt::format("TANDEM_THREADS is {}, and this process may use {}: threads that share a core wait "
                    "for each other",
                    cores.available, counted(available_cores(), "core")));
  if (cores.out_of_reach > 0 && options_.threads == 0)
    log_warning(fmt::format(
        "mpirun binds each rank to {}, so a rank computes with {}, which leaves {} of the job idle; mpirun "
        "--bind-to none frees them",
        counted(available_cores(), "core"), counted(cores.threads, "thread"),
        counted(cores.out_of_reach, "core")));
  if (const int busy = cores.threads * cores.lanes; busy + cores.loaders > cores.available)
    log_warning(fmt::format("{}{} share {}", counted(busy, "computing thread"),
                            cores.loaders > 0 ? " and " + counted(cores.loaders, "loading thread") : "",
                            counted(cores.available, "core")));
  planning.end();
  if (options_.evaluate) {
    evaluate(trainer);
    return;
  }
  if (start_.ended && trainer.finished()) {  // keeps what the run measured
    log_info(fmt::format("nothing is left to train: the run in '{}' is complete", options_.output));
    model_runs_.describe(begin_);
    set_ranking(evaluate(trainer), begin_.progress.losses.mean());
    return;
  }
  if (const std::int64_t warm = options_.warmup_epochs * trainer.length().per_epoch;
      warm > 0 && warm >= trainer.length().total)
    log_warning("--warmup-epochs lasts as long as the run or longer, so the rate never reaches --lr");
  if (is_main()) say_what_it_trains(trainer, cores);
  train(trainer);
}

std::unique_ptr<Trainer> TrainingRun::trainer(const CifarData& data, TrainerOptions with) const {
  if (!is_sweep()) return std::make_unique<Trainer>(*networks_[0], data.train, std::move(with));
  ModelArray models;
  for (std::size_t m = 0; m < networks_.size(); ++m) {
    const TrainOptions one = options_of_model(options_, static_cast<int>(m));
    models.push_back(
        {.module = networks_[m].get(),
         .options = model_options_of(one),
         .objective = objective_of(one),
         .lr = one.lr[0],
         .lr_schedule = [one](const RunLength& run) { return lr_schedule_of(one, run, one.lr[0]); },
         .seed = one.seed[0],
         .data = data.of_models.empty() ? nullptr : data.of_models[m]});
  }
  return std::make_unique<Trainer>(std::move(models), data.train, std::move(with));
}

// A run that is continued keeps its cuts.
void TrainingRun::cut(const Graph& forward, Strategy& strategy) {
  std::vector<std::string>& cuts = strategy.cuts;
  if (cuts.empty() && start_.checkpoint) {
    cuts = read_run_state(*start_.checkpoint).cuts;
    if (std::ssize(cuts) + 1 != strategy.stages) cuts.clear();
    if (!cuts.empty()) {
      profile_.reset();
      try {
        cut_into_stages(forward, cuts, engine::schedule_of(strategy).stages);
      } catch (const Error& e) {
        throw Error(fmt::format("checkpoint '{}': {}", start_.checkpoint->path, e.what()));
      }
    }
  }
  if (cuts.empty() && profile_) cuts = measured_cuts(forward, strategy, *profile_);
  cuts = cuts_of(forward, strategy);
  begin_.cuts = cuts;
}

// Checks that the checkpoint fits this run before anything is replaced.
void TrainingRun::agree_on_checkpoint() {
  if (!start_.checkpoint) {
    const std::string args = (std::filesystem::path(options_.output) / "args.json").string();
    if (options_.resume == "auto" && look_at(args, "args") == Found::own)
      require_same_arguments(options_.output, read_text("arguments", args), options_);
    if (options_.resume == "auto")
      log_info(fmt::format("no checkpoint in {}: begins at batch 0", options_.output));
    return;
  }
  const RunState saved = read_run_state(*start_.checkpoint);
  const std::string note = compare(saved, begin_);
  if (!options_.evaluate) begin_.progress = saved.progress;
  for (const std::string& why : start_.damaged) log_warning("a checkpoint is passed over: " + why);
  if (!note.empty()) log_warning(note);
  if (!options_.evaluate)
    log_info(fmt::format("resumes at batch {} from {}", begin_.progress.batch, start_.checkpoint->path));
}

TrainerOptions TrainingRun::trainer_options(const Strategy& strategy, const CoreShares& cores,
                                            const DatasetPtr& test) const {
  const bool only_at_end = options_.checkpoint_every == 0 && !options_.output.empty();
  return {
      .strategy = strategy,
      .turns = memory_.turns,
      .batch_size = options_.batch_size,
      .epochs = options_.epochs,
      .batches = options_.steps,
      .lr = options_.lr,
      .lr_schedule = [o = options_](const RunLength& run, double lr) { return lr_schedule_of(o, run, lr); },
      .seeds = options_.seed,
      .objective = objective_of(options_),
      .test = test,
      .patience = options_.patience,
      .drop_last = options_.drop_last,
      .workers = options_.workers,
      .checkpoint_every = only_at_end ? std::numeric_limits<std::int64_t>::max() : options_.checkpoint_every,
      .score_checkpoints = options_.keep_best,
      .on_non_finite = options_.on_nan == "skip"       ? OnNonFinite::skip
                       : options_.on_nan == "rollback" ? OnNonFinite::rollback
                       : options_.on_nan == "mask"     ? OnNonFinite::mask
                                                       : OnNonFinite::stop,
      .prunes = options_.prune == "median",
      .max_rollbacks = options_.max_rollbacks,
      .spans = options_.trace.empty() ? 0 : kSpansPerLane,
      .all_reduces = all_reduce_options(strategy, cores),
      .comms = comms(),
      .spare = are_processes() ? mpi_->comm() : nullptr,
      .log = is_main() ? log_info : std::function<void(const std::string&)>()};
}

// The policies that plan from bytes alone have set the strategy's groups.
AllReduceOptions TrainingRun::all_reduce_options(const Strategy& strategy, const CoreShares& cores) const {
  AllReduceOptions o;
  if (options_.evaluate || !strategy.fusion_groups.empty()) return o;
  const bool has_plan = !options_.plan.empty() && holds_all_reduces(options_.plan);
  o.policy = options_.allreduce;
  if (o.policy == "auto" && (has_plan || (options_.dump_profile && options_.ranks > 1))) o.policy = "libra";
  o.threads = options_.comm_threads.empty() ? powers_of_two(std::max(2, cores.rank)) : options_.comm_threads;
  if (has_plan)
    o.known = read_all_reduces(options_.plan);
  else if (start_.checkpoint && is_main() && !options_.dump_profile)
    o.known = measured_before(*start_.checkpoint);
  return o;
}

void TrainingRun::load(Trainer& trainer) const {
  const std::int64_t done = begin_.progress.batch, total = trainer.length().total;
  if (done > total)  // Trainer::load would not name the flags
    throw Error(
        fmt::format("--resume: {} are trained already, and the run ends after {}; raise --epochs or --steps",
                    counted(done, "batch"), total));
  if (!start_.checkpoint)
    trainer.load(initial_state());
  else if (options_.evaluate)
    trainer.load(read_model_state(*networks_[0], *start_.checkpoint, options_.models));
  else
    trainer.load(*start_.checkpoint);
}

std::vector<double> TrainingRun::evaluate(Trainer& trainer) {
  const SignalWatch::During during(signals_, [&](int signal) { stop_run(trainer, signal); });
  const auto running = announced(trainer.session());
  if (is_main() && test_images_ >= kManyImages) log_info(fmt::format("evaluates {} images", test_images_));
  const std::vector<double> accuracy = trainer.evaluate();
  const std::string& of = start_.checkpoint ? start_.checkpoint->path : start_.weights;
  if (is_main()) fmt::print("{}{}\n", accuracy_line(accuracy), of.empty() ? "" : ", of " + of);
  return accuracy;
}

// Only the main rank has a writer, whose thread writes while training continues.
std::unique_ptr<CheckpointWriter> TrainingRun::checkpoint_writer(std::int64_t total) const {
  if (options_.output.empty() || !is_main()) return nullptr;
  const Retention retention{options_.keep, options_.keep_every, options_.keep_best};
  return std::make_unique<CheckpointWriter>(CheckpointStore(checkpoints_of(options_.output), retention),
                                            [this, total](std::int64_t batch, const std::string& why) {
                                              failed_save_ = batch;
                                              say_that_save_failed("the checkpoint", batch, total, why);
                                            });
}

void TrainingRun::say_that_save_failed(const std::string& what, std::int64_t batch, std::int64_t total,
                                       const std::string& why) const {
  const bool continues = !is_ending_ && batch < total;
  log_error(fmt::format("{} after {} failed{}: {}", what, counted(batch, "batch"),
                        continues ? ", but training continues" : "", why));
}

void TrainingRun::train(Trainer& trainer) {
  const bool terminal =
      !launch_environment().launched && is_drawable();  // mpirun's output only looks like a terminal
  ProgressLine progress(trainer.length().total, begin_.progress.batch,
                        std::max(1, static_cast<int>(std::ssize(memory_.turns))), options_.print_every,
                        terminal);
  const auto ending = ending_by(trainer);
  const SignalWatch::During during(signals_, [&](int signal) { end_run(trainer, signal); });
  if (is_main()) directory_.start(begin_.options, begin_.progress.batch);  // from here on it is this run's
  directory_.plan(plan_);
  if (options_.dump_profile) directory_.memory_problems(memory_.plans);
  if (options_.dump_profile && memory_.plans.empty() && options_.ranks == 1)
    log_info("no memory plan is needed, so there is no memory.json");
  const Session& session = trainer.session();
  log_debug(fmt::format("{} to train, of {}; planned and proved, with a peak of {:.1f} MB",
                        counted(trainer.length().total - begin_.progress.batch, "batch"),
                        trainer.length().total, static_cast<double>(session.planned_peak()) / 1e6));
  if (const std::string why = trainer.why_saved_all_reduces_are_unfit(); !why.empty())
    log_warning("the saved all-reduces do not fit this run: " + why);
  const std::int64_t total = trainer.length().total;
  const auto writer = checkpoint_writer(total);
  model_runs_.start(begin_, [this, total](std::int64_t batch, const std::string& why) {
    say_that_save_failed("the checkpoint of a model", batch, total, why);
  });
  trainer.add(directory_.callbacks());
  trainer.add(model_runs_.callbacks());
  PredictionMeans prediction;
  trainer.add({.batch = [&](const BatchResult& b) { prediction.add(b.prediction); }});
  trainer.add({.batch = [&](const BatchResult& b) { progress.update(b); },
               .begin_evaluation = [&] { progress.testing(test_images_); },
               .end_epoch =
                   [&](const EpochResult& e) {
                     progress.tested();
                     if (e.batches == trainer.length().total) return;  // report() prints it
                     log_info(fmt::format("epoch {}  train loss {}  {}", e.epoch, of_models(e.loss, 4),
                                          accuracy_line(e.accuracy)));
                   },
               .before_checkpoint =
                   [&] {
                     writer->wait();
                     model_runs_.wait();
                   },
               .checkpoint =
                   [&](const CheckpointResult& c) {
                     RunState now = begin_;
                     now.epoch = c.progress.batch / trainer.length().per_epoch;
                     writer->save(c.progress.batch,
                                  checkpoint_files(*networks_[0], c, options_.models, notes_of(now)),
                                  mean(c.accuracy));
                     model_runs_.save(c, *networks_[0], now.epoch);
                   },
               .end = [](const EpochResult&) { end_line(); },
               .non_finite = [](const NonFiniteBatch& b) { log_warning(what_becomes_of(b)); },
               .stopped = [](const StoppedModel& m) { log_warning(what_becomes_of(m)); },
               .all_reduces_planned =
                   [&](const AllReduceReport& r) {
                     end_line();
                     say_all_reduces(r);
                     directory_.all_reduces(r);
                     if (r.is_doubtful && directory_.keeps())
                       log_warning(fmt::format(
                           "resumed runs use these times, which {} holds; to measure again, resume with "
                           "--dump-profile, or remove the file",
                           directory_.path(kAllReduces)));
                   }});
  try {
    const auto running = announced(session);
    const EpochResult end = trainer.fit();
    const Timeline timeline = options_.trace.empty()
                                  ? Timeline()
                                  : trainer.session().timeline(main_rank(), trainer.training_program());
    const Trainer::Peaks peaks = trainer.peaks();
    if (is_main()) {
      if (!trainer.all_reduces_are_planned())
        log_warning("the run ended before its all-reduces were measured and planned");
      progress.saving();
      if (writer) writer->wait();
      model_runs_.wait();
      progress.saved();
      report(end, peaks);
      if (const std::string means = prediction.text(); !means.empty()) log_info(means);
      write_trace(options_.trace, timeline, options_.trace_steps);
      if (failed_save_ == end.batches)
        throw Error(
            "the run is complete, but its last checkpoint could not be saved: what it learned is lost");
      say_where_it_is(end.batches);
    }
    meet();  // no signal ends another rank, and with it the job, while this one saves
  } catch (const Aborted& e) {
    save_what_was_traced(trainer);
    if (signal_behind(e) == 0)
      trainer.help_explain();
    else if (is_main())
      say_what_is_left(writer.get(), progress);
    if (trainer.has_ended_early()) meet();  // a rank that ends ends them all, also the one that still writes
    throw;
  } catch (const NonFinite& e) {
    set_ranking({}, {});
    tell_others(e.what());
    throw;
  } catch (const std::exception& e) {
    const std::string rank = are_processes() ? fmt::format("rank {}", mpi_->rank()) : "";
    const Error named(rank.empty() || std::string_view(e.what()).starts_with(rank)
                          ? std::string(e.what())
                          : fmt::format("{}: {}", rank, e.what()));
    tell_others(named.what());
    throw named;
  }
}

}  // namespace tandem::apps
