#include "trainer.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/autograd/batch.h>
#include <tandem/core/error.h>
#include <tandem/core/program_json.h>
#include <tandem/core/rng.h>
#include <tandem/core/sim_backend.h>
#include <tandem/core/team.h>
#include <tandem/core/trace.h>
#include <tandem/datasets/draw.h>
#include <tandem/datasets/drawn_dataset.h>
#include <tandem/dist/agree.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/dist/throttle.h>
#include <tandem/nn/models/networks.h>
#include <tandem/nn/weights.h>
#include <tandem/pipeline/stages.h>
#include <tandem/plan/build.h>
#include <tandem/plan/non_finite.h>
#include <tandem/plan/plan_file.h>
#include <tandem/plan/profile.h>

#include "lane_report.h"
#include "output_file.h"
#include "standard_output.h"

namespace tandem::apps {
namespace {

constexpr std::int64_t kSimulatedBatches = 20;

Optimizer optimizer_of(const TrainOptions& o) {
  if (o.optimizer == "sgd")
    return SgdOptions{.momentum = o.momentum, .weight_decay = o.weight_decay, .nesterov = o.nesterov};
  return AdamOptions{.beta1 = o.betas[0],
                     .beta2 = o.betas[1],
                     .weight_decay = o.weight_decay,
                     .decoupled = o.optimizer == "adamw"};
}

// Parameters of one dimension: biases, and the scales of normalisations.
std::vector<std::string> vectors_of(const Graph& g) {
  std::vector<std::string> paths;
  for (const StateSlot& s : g.slots())
    if (s.trained && s.type.rank() == 1) paths.push_back(s.path);
  return paths;
}

// Per model.
std::string accuracy_line(std::vector<double> accuracy) {
  for (double& a : accuracy) a *= 100;
  return fmt::format("test accuracy {:.2f} %", fmt::join(accuracy, " "));
}

}  // namespace

Trainer::Trainer(TrainOptions options, SignalWatch& signals, MpiSession* mpi)
    : options_(std::move(options)), signals_(signals), mpi_(mpi) {}

void Trainer::run() {
  const bool writes = is_main() && !options_.evaluate;
  if (writes) directory_ = RunDirectory(options_);  // before what it holds is looked at
  start_ = find_start(options_);
  if (writes) directory_.claim(options_, start_.in_place);
  if (is_main()) require_writable("--trace", options_.trace);  // before anything that takes long
  MemoryDataset train_data = read_data(CifarSplit::train), test_data = read_data(CifarSplit::test);
  classes_ = train_data.classes();
  if (options_.batch_size > train_data.size())
    throw Error(fmt::format("--batch-size {} is larger than the training set of {}", options_.batch_size,
                            counted(train_data.size(), "image")));
  check_last_batch(train_data.size());
  if (mpi_ && mpi_->size() > 1) {
    TrainOptions common = options_;
    common.command_line.clear();
    common.data.clear();  // the data themselves count
    agree(*mpi_->comm(),
          fnv1a(fmt::format("{} {} {} {}", to_json(common), train_data.digest(), test_data.digest(),
                            start_.digest)),
          "arguments or data", 0);
  }
  begin_.train_data = train_data.digest();
  begin_.test_data = test_data.digest();
  const DatasetPtr train_set = std::make_shared<MemoryDataset>(std::move(train_data)),
                   test_set = std::make_shared<MemoryDataset>(std::move(test_data));
  options_.simulate ? simulate(train_set) : train(train_set, test_set);
}

MemoryDataset Trainer::read_data(CifarSplit split) const {
  const bool training = split == CifarSplit::train;
  if (options_.data == "synthetic")
    return draw_cifar(training ? options_.synthetic_train : options_.synthetic_test, options_.seed[0],
                      training ? 0 : kFirstDrawnTestIndex);
  BadSamples bad(allowed_bad_samples(options_.bad_samples));
  MemoryDataset data = load_cifar(options_.data, split, &bad);
  if (is_main() && bad.count() > 0)
    fmt::print("note: {} of the {} set left out, the first of them: {}\n", counted(bad.count(), "image"),
               training ? "training" : "test", bad.first());
  return data;
}

// All ranks and micro-batches must get equal parts of it.
void Trainer::check_last_batch(std::int64_t images) const {
  const std::int64_t last = images % options_.batch_size,
                     parts = std::int64_t{options_.ranks} * options_.microbatches;
  if (!options_.drop_last && last % parts != 0)
    throw Error(fmt::format(
        "--no-drop-last: the last of {} in batches of {} is one of {}, which is not divided by {} × {}; "
        "choose another --batch-size, or --drop-last",
        counted(images, "image"), options_.batch_size, last, counted(options_.ranks, "rank"),
        counted(options_.microbatches, "micro-batch")));
}

int Trainer::compute_lanes() const {
  const int lanes = options_.parallel == "pipeline" && options_.schedule == "dualpipe" ? 2 : 1;  // of a rank
  return has_own_cores() ? lanes : lanes * options_.ranks * options_.stages;
}

int Trainer::lane_threads() const {
  return options_.threads > 0 ? options_.threads
                              : std::max(1, (default_threads() - loader_threads()) / compute_lanes());
}

bool Trainer::has_own_cores() const {
  return mpi_ && default_threads() < static_cast<int>(std::thread::hardware_concurrency());
}

// Under MPI, in each process whose stage takes the images.
int Trainer::loader_threads() const {
  return options_.workers * (mpi_ && !has_own_cores() ? options_.ranks : 1);
}

LoaderOptions Trainer::ahead(const Program& program) const {
  LoaderOptions o{.workers = options_.workers, .buffers = 2 * options_.workers + program.max_lag + 1};
  if (!mpi_ || mpi_->size() == 1) return o;
  o.replica = mpi_->rank() / options_.stages;
  o.replicas = options_.ranks;
  o.labels = options_.stages == 1;
  if (mpi_->rank() % options_.stages != 0) o.workers = 0;  // labels cost next to nothing
  return o;
}

Strategy Trainer::strategy() const {
  Strategy s;
  s.models = options_.models;
  s.replicas = options_.ranks;
  s.stages = options_.stages;
  s.microbatches = options_.microbatches;
  s.schedule = options_.parallel == "pipeline" ? schedule_from_name(options_.schedule) : ScheduleKind::plain;
  s.lockstep = options_.lockstep;
  s.optimizer = optimizer_of(options_);
  if (options_.clip_norm > 0) s.gradients.clip_norm = options_.clip_norm;
  if (options_.clip_value > 0) s.gradients.clip_value = options_.clip_value;
  s.gradients.skip_non_finite = options_.on_nan == "skip";
  const Graph forward = forward_graph(1, true);
  if (options_.no_bias_decay) s.parameter_groups = {{vectors_of(forward), 1, 0.0}};
  if (options_.amp_dtype == "bf16") s.amp = DType::bf16;
  s.threads = lane_threads();
  if (!options_.link.empty()) s.link = parse_link(options_.link);
  if (!options_.memory_budget.empty()) s.memory_budget = parse_bytes(options_.memory_budget);
  if (!options_.plan.empty()) read_plan(options_.plan, s);
  if (s.cuts.empty()) s.cuts = balanced_cuts(forward, s.stages);  // evaluation's as well
  return s;
}

Graph Trainer::forward_graph(std::int64_t samples, bool training) const {
  nn::set_default_dtype(dtype_from_name(options_.dtype));
  const auto network = nn::make_network(options_.arch, classes_);
  network->initialise(options_.seed[0]);
  return trace_classifier(*network, samples, dtype_from_name(options_.dtype), training);
}

std::map<std::string, Tensor> Trainer::initial_state() const {
  nn::set_default_dtype(dtype_from_name(options_.dtype));
  std::vector<std::map<std::string, Tensor>> models;
  for (std::uint64_t seed : options_.seed) {
    const auto network = nn::make_network(options_.arch, classes_);
    if (start_.weights.empty())
      network->initialise(seed);
    else
      nn::load_weights(*network, start_.weights);
    models.push_back(network->state());
  }
  return stack_states(models);
}

// That it fits this run is known before anything is lost.
void Trainer::agree_on_checkpoint() {
  if (!start_.checkpoint) return;
  const RunState saved = read_run_state(*start_.checkpoint);
  const std::string note = compare(saved, begin_);
  if (!options_.evaluate) {
    begin_.batch = saved.batch;
    begin_.losses = saved.losses;
  }
  if (!is_main()) return;
  for (const std::string& why : start_.damaged) fmt::print("note: a checkpoint is passed over: {}\n", why);
  if (!note.empty()) fmt::print("note: {}\n", note);
  if (!options_.evaluate) fmt::print("resumes at batch {} from {}\n", begin_.batch, start_.checkpoint->path);
}

std::unique_ptr<CheckpointWriter> Trainer::checkpoint_writer() const {
  if (options_.checkpoint_every == 0) return nullptr;
  const Retention retention{options_.keep, options_.keep_every, options_.keep_best};
  return std::make_unique<CheckpointWriter>(
      CheckpointStore(checkpoints_of(options_.output), retention),
      [](std::int64_t batch, const std::string& why) {
        say_error(fmt::format("train_cifar: the checkpoint after {} failed, training goes on: {}",
                              counted(batch, "batch"), why));
      });
}

// Drained, after so many batches. All ranks give what they hold; the main one writes while training goes on.
void Trainer::save_checkpoint(const Run& run, std::int64_t batch) {
  if (run.writer) run.writer->wait();  // there is one copy of the state at a time
  copy_ = run.session.state(main_rank(), nullptr, std::move(copy_));
  std::optional<double> score;
  if (options_.keep_best) {
    const std::vector<double> accuracy = evaluate(run.session, run.evaluation, run.evaluates);
    score = std::accumulate(accuracy.begin(), accuracy.end(), 0.0) / static_cast<double>(accuracy.size());
  }
  if (!run.writer) return;
  RunState now = begin_;
  now.batch = batch;
  now.epoch = batch / run.host.batches_per_epoch();
  now.losses = run.log->losses();
  run.writer->save(batch, checkpoint_files(copy_, std::move(now), classes_), score);
}

std::vector<double> Trainer::evaluate(Session& session, CifarEvaluation& evaluation, int program) const {
  evaluation.start();
  session.run(0, evaluation.batches(), program);
  return evaluation.accuracy();
}

std::vector<std::unique_ptr<Comm>> Trainer::comms() const {
  std::vector<std::unique_ptr<Comm>> comms;
  const int ranks = options_.ranks * options_.stages;
  if (ranks == 1) return comms;
  if (mpi_) {
    comms.push_back(mpi_->comm());
  } else {
    const ThreadWorld world(ranks);
    for (int r = 0; r < ranks; ++r) comms.push_back(world.comm(r));
  }
  if (!options_.link.empty())
    for (auto& comm : comms) comm = throttle(std::move(comm), parse_link(options_.link));
  return comms;
}

// Says what swaps and recomputes do, since those that lower nothing only cost time.
Program Trainer::training_program(const Strategy& s) const {
  const Graph forward = forward_graph(options_.batch_size / s.replicas / s.microbatches, true);
  Program program = build(forward, s);
  if (!is_main() || (s.swap.empty() && s.recompute.empty())) return program;
  Strategy bare = s;
  bare.swap.clear();
  bare.recompute.clear();
  bare.memory_budget = 0;
  const Program without = build(forward, bare);
  const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  fmt::print("{}: planned peak {:.1f} MB, {:.1f} MB without swaps and recomputes (live {:.1f}, {:.1f} MB)\n",
             planned_peak(program) < planned_peak(without) ? "plan" : "warning: the plan lowers no peak",
             mb(planned_peak(program)), mb(planned_peak(without)), mb(live_peak(program)),
             mb(live_peak(without)));
  return program;
}

void Trainer::train(const DatasetPtr& train, const DatasetPtr& test) {
  const Strategy s = strategy();
  begin_.options = options_;
  begin_.options.threads = s.threads;
  begin_.arguments = to_json(begin_.options);
  agree_on_checkpoint();
  const Program program = training_program(s);
  std::unique_ptr<TrainingLog> log;
  std::unique_ptr<CheckpointWriter> writer;
  CifarTraining host(
      train, options_, [&](std::int64_t batch, const CifarTraining::Batch& b) { log->arrived(batch, b); },
      ahead(program));
  const auto spare = mpi_ && mpi_->size() > 1 ? mpi_->comm() : nullptr;
  // Evaluation in the micro-batches of training, whose memory it fits.
  const std::int64_t samples = options_.batch_size / s.replicas / s.microbatches;
  CifarEvaluation evaluation(test, options_, samples * s.replicas);
  Session session(program, comms(), host,
                  {.spans = options_.trace.empty() ? 0 : kSpansPerLane, .memory_budget = s.memory_budget});
  const int evaluates = session.add(build(forward_graph(samples, false), for_evaluation(s)), evaluation);
  const std::int64_t last = train->size() % options_.batch_size / s.replicas / s.microbatches;
  const int trains_last =
      options_.drop_last || last == 0 ? 0 : session.add(build(forward_graph(last, true), s), host);
  if (begin_.batch > host.total_batches())
    throw Error(
        fmt::format("--resume: {} are trained already, and the run ends after {}; raise --epochs or --steps",
                    counted(begin_.batch, "batch"), host.total_batches()));
  session.load(start_.checkpoint ? read_state(*start_.checkpoint, options_, classes_, options_.evaluate)
                                 : initial_state());
  if (options_.evaluate) {
    const SignalWatch::During during(signals_, [&](int signal) { end_run(session, signal); });
    const std::vector<double> accuracy = evaluate(session, evaluation, evaluates);
    if (is_main()) fmt::print("{}\n", accuracy_line(accuracy));
    return;
  }
  if (is_main()) {
    log = begin(host, s.threads);
    writer = checkpoint_writer();
  }
  try {
    const SignalWatch::During during(signals_, [&](int signal) { end_run(session, signal); });
    run_epochs({session, host, evaluation, trains_last, evaluates, log.get(), writer.get()});
    const Timeline timeline = options_.trace.empty() ? Timeline() : session.timeline(main_rank());
    const std::vector<double> accuracy = evaluate(session, evaluation, evaluates);
    const std::int64_t peak = session.executed_peak(main_rank());
    if (!log) return;
    log->finish();
    report(*log, session, peak, accuracy);
    write_trace(timeline);
  } catch (const NonFinite& e) {
    const std::string where = where_non_finite(train, session.state(main_rank(), spare.get()), e.batch);
    throw NonFinite(fmt::format("{}{}; lower --lr, or look at the data", e.what(), where), e.batch);
  } catch (const Aborted& e) {
    save_what_was_traced(session);
    if (spare && signal_behind(e) == 0) help_explain(session, *spare);
    throw;
  }
}

// What the main rank does last before it trains: from here on the run directory is this run's.
std::unique_ptr<TrainingLog> Trainer::begin(const CifarTraining& host, int threads) {
  if (const int busy = threads * compute_lanes(); busy + loader_threads() > default_threads())
    fmt::print("note: {}{} share {}\n", counted(busy, "computing thread"),
               loader_threads() > 0 ? " and " + counted(loader_threads(), "loading thread") : "",
               counted(default_threads(), "core"));
  directory_.start(begin_.options, begin_.batch);
  const bool terminal = !mpi_ && isatty(STDOUT_FILENO) != 0;  // mpirun's is none, though it seems one
  auto log = std::make_unique<TrainingLog>(options_, directory_, host.batches_per_epoch(),
                                           host.total_batches(), terminal);
  if (begin_.batch > 0) log->resume(begin_.batch, begin_.losses);
  log->start();
  return log;
}

// A signal may mean that another rank died: it is said where this one was.
void Trainer::end_run(Session& session, int signal) const {
  if (mpi_ && signal == SIGTERM) {
    const std::string doing = session.doing();
    say_error(fmt::format("train_cifar: rank {} ended by SIGTERM; it was {}", mpi_->rank(),
                          doing.empty() ? "between two steps" : "in: " + doing));
  }
  session.stop(interruption(signal));
}

// A short last batch has a Program of its own.
void Trainer::run_epochs(const Run& run) {
  const std::int64_t total = run.host.total_batches(), per_epoch = run.host.batches_per_epoch(),
                     every = options_.checkpoint_every;
  run.host.start(begin_.batch);
  for (std::int64_t batch = begin_.batch, next; batch < total; batch = next) {
    // Drained after every epoch, and for checkpoints, at batches that do not depend on where the run began.
    next = std::min(total, (batch / per_epoch + 1) * per_epoch);
    if (every > 0) next = std::min(next, (batch / every + 1) * every);
    const std::int64_t whole = next - (run.host.samples(next - 1) < options_.batch_size);
    if (whole > batch) run.session.run(batch, whole - batch);
    if (whole < next) run.session.run(whole, 1, run.trains_last);
    if (every > 0 && (next % every == 0 || next == total)) save_checkpoint(run, next);
  }
}

// Another rank failed, perhaps the main one because of a loss that is not finite: it asks for all the state.
// Whichever failed ends the job, and this wait with it.
void Trainer::help_explain(const Session& session, Comm& spare) const {
  session.state(main_rank(), &spare);
  std::vector<int> all(static_cast<std::size_t>(spare.size()));
  std::iota(all.begin(), all.end(), 0);
  spare.barrier(all, 0);
}

// Of a run that ended early. That a file cannot be written is said, and is not why it ended.
void Trainer::save_what_was_traced(Session& session) const {
  if (mpi_) return;  // the others may be gone
  try {
    write_trace(session.timeline());
  } catch (const Error& e) {
    say_error(fmt::format("train_cifar: {}", e.what()));
  }
}

void Trainer::write_trace(const Timeline& timeline) const {
  if (options_.trace.empty()) return;
  write_file(options_.trace, to_perfetto(timeline));
  if (timeline.dropped > 0)
    fmt::print(
        "note: --trace has the first {} steps of each lane; {} later ones are missing: trace a shorter run\n",
        kSpansPerLane, timeline.dropped);
}

void Trainer::report(const TrainingLog& log, const Session& session, std::int64_t peak,
                     const std::vector<double>& accuracy) {
  Summary summary;
  summary.test_accuracy = accuracy;
  summary.train_loss = log.mean_loss();
  summary.step_ms = log.mean_step_ms();
  summary.skipped = log.losses().not_finite;
  summary.images_per_second = log.images_per_second();
  summary.peak_bytes = peak;
  summary.planned_peak_bytes = session.planned_peak();
  summary.live_peak_bytes = session.live_peak();
  fmt::print("{}  train loss {:.4f}  {:.2f} ms a step  {:.0f} images/s  peak {:.1f} MB\n",
             accuracy_line(accuracy), fmt::join(summary.train_loss, " "), summary.step_ms,
             summary.images_per_second, static_cast<double>(summary.peak_bytes) / 1e6);
  directory_.summary(summary);
}

// The forward graph of the whole batch once more, node by node.
std::string Trainer::where_non_finite(const DatasetPtr& train, const std::map<std::string, Tensor>& state,
                                      std::int64_t batch) const {
  TrainOptions whole = options_;
  whole.ranks = whole.microbatches = 1;
  CifarTraining host(train, whole, [](std::int64_t, const CifarTraining::Batch&) {});
  Graph graph = forward_graph(host.samples(batch), true);
  if (options_.models > 1) graph = tandem::batch(graph, options_.models);
  const std::string value = tandem::first_non_finite(graph, state, host, batch);
  return value.empty() ? "" : "; the first value that is not finite is " + value;
}

void Trainer::simulate(const DatasetPtr& train) {
  if (!is_main()) return;
  Profile profile;
  if (!options_.profile.empty()) profile = Profile::read(options_.profile);
  const Strategy s = strategy();
  Program program = training_program(s);
  const std::int64_t batches =
      options_.steps > 0 ? options_.steps : std::min(kSimulatedBatches, train->size() / options_.batch_size);
  require_simulable("--steps", batches, program);
  if (options_.profile.empty()) {
    TrainOptions still = options_;  // a rate of 0 keeps the weights, and all values, as they are
    std::fill(still.lr.begin(), still.lr.end(), 0.0);
    CifarTraining host(train, still, [](std::int64_t, const CifarTraining::Batch&) {});
    profile.measure(program, cpu_kernels(), host, initial_state());
  }
  program = with_costs(std::move(program), profile);
  if (options_.link.empty() && s.replicas * s.stages > 1)
    fmt::print("note: without --link, all-reduces cost nothing and transfers a copy in memory\n");
  const int busy = s.threads * compute_lanes();
  if (busy > default_threads())
    fmt::print("note: predicted for {} with a core each; this machine has {}\n",
               counted(busy, "computing thread"), counted(default_threads(), "core"));
  // Lanes of a stage with a core each do not disturb each other; with fewer cores they take turns.
  program.corun = busy <= default_threads() ? 0.5 : 1.0;
  SimBackend sim(program);
  tandem::run(sim, batches);
  directory_.start(options_);
  if (directory_.keeps()) {
    profile.write(directory_.path("profile.json"));
    write_file(directory_.path("program.json"), to_json(program));
  }
  write_trace(sim.timeline());
  Summary summary;
  summary.simulated = true;
  summary.step_ms = sim.now() / static_cast<double>(batches) * 1e3;
  summary.images_per_second = static_cast<double>(options_.batch_size) / summary.step_ms * 1e3;
  summary.planned_peak_bytes = planned_peak(program);
  summary.live_peak_bytes = live_peak(program);
  directory_.summary(summary);
  fmt::print("predicted: {:.2f} ms a step, {:.0f} images/s, planned peak {:.1f} MB per device\n",
             summary.step_ms, summary.images_per_second,
             static_cast<double>(summary.planned_peak_bytes) / 1e6);
  print_lanes(sim);
}

}  // namespace tandem::apps
