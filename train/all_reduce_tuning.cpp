#include <tandem/train/all_reduce_tuning.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/dist/data_parallel.h>
#include <tandem/dist/measured_backward.h>
#include <tandem/ops/collective.h>

namespace tandem {

using namespace engine;

namespace {

// Of each Program, the first batch is not measured: it allocates.
constexpr std::int64_t kWarmUp = 1, kLayerBatches = 5, kRandomBatches = 6, kResultBatches = 5;
constexpr int kGroupings = 4;
static_assert(2 * kWarmUp + kLayerBatches + kResultBatches + kGroupings * (kWarmUp + kRandomBatches) <=
              kMostTuningBatches);

std::vector<std::int64_t> channels_of_gradients(const Program& p) {
  std::vector<std::int64_t> channels;
  for (const Instruction& i : p.instructions)
    if (as<AllReduceOp>(i)) channels.push_back(i.tag.channel);
  return channels;
}

double sum_of_times(const std::vector<GradientLayer>& layers) {
  return std::accumulate(layers.begin(), layers.end(), 0.0,
                         [](double sum, const GradientLayer& l) { return sum + l.compute_ms; });
}

// Short sums, which travel in first messages, do not take Eq. 3's time: the rank that calls last has the
// others' parts already. If there are longer ones, the fit is of those.
std::vector<BackwardSample> without_short(std::vector<BackwardSample> samples) {
  constexpr double kShortBytes = 16 << 10;
  constexpr std::ptrdiff_t kEnough = 12;
  const auto is_short = [](const AllReduceSample& s) { return s.sent_bytes <= kShortBytes; };
  std::ptrdiff_t longer = 0;
  for (const BackwardSample& s : samples)
    longer += std::ranges::count_if(s.all_reduces, std::not_fn(is_short));
  if (longer >= kEnough)
    for (BackwardSample& s : samples) std::erase_if(s.all_reduces, is_short);
  return samples;
}

// A group as it travels from the rank that plans to the others.
struct SentGroup {
  std::int32_t stage, first_layer, last_layer, threads;
};

}  // namespace

AllReduceTuning::AllReduceTuning(Session& session, Host& host, Build build,
                                 std::vector<std::vector<GradientLayer>> stages, Options options)
    : session_(session),
      host_(host),
      build_(std::move(build)),
      options_(std::move(options)),
      replicas_(session.program().replicas),
      samples_(stages.size()) {
  if (options_.policy == "horovod" || !all_reduce_policy(options_.policy).needs_times)
    throw Error(fmt::format("the policy '{}' does not plan the all-reduces of a run from measured times",
                            options_.policy));
  if (session.program().max_lag > 0)
    throw Error(
        "all-reduces are planned during a run only if every update comes before the next batch; this "
        "schedule has several batches in flight");
  for (auto& layers : stages) report_.stages.push_back({.layers = std::move(layers)});
}

AllReduceTuning::~AllReduceTuning() = default;

bool AllReduceTuning::is_root() const { return !options_.talk || options_.talk->rank() == options_.root; }

// Goes on with a Program of these groups instead of the last one.
void AllReduceTuning::use(const std::vector<FusionGroup>& groups) {
  const ProgramHandle before = program_;
  program_ = session_.add(build_(groups), host_);
  if (before != ProgramHandle()) session_.drop(before);
  done_ = 0;
}

// Draws how many threads each all-reduce of the next batch has. All ranks draw the same numbers.
void AllReduceTuning::draw_threads() {
  std::map<std::int64_t, int> threads;
  for (const std::int64_t channel : channels_of_gradients(session_.program(program_)))
    threads[channel] = options_.threads[rng_() % options_.threads.size()];
  session_.set_threads(threads, program_);
}

Timeline AllReduceTuning::timeline() {
  return session_.timeline(options_.talk ? options_.root : 0, program_);
}

std::int64_t AllReduceTuning::run(std::int64_t first_batch, std::int64_t most) {
  if (finished() || most < 1) return 0;
  if (program_ == ProgramHandle()) {
    std::vector<std::vector<GradientLayer>> stages;
    for (const StageAllReduces& s : report_.stages) stages.push_back(s.layers);
    use(fusion_groups(stages, "se"));
  }
  const bool random = step_ == Step::random_plans;
  const std::int64_t measured = step_ == Step::layers ? kLayerBatches
                                : random              ? kRandomBatches
                                                      : kResultBatches;
  const bool warms_up = done_ < kWarmUp;
  const std::int64_t left = warms_up ? kWarmUp - done_ : random ? 1 : kWarmUp + measured - done_;
  const std::int64_t batches = std::min(left, most);
  if (done_ == kWarmUp)
    session_.measure(session_.program(program_).instructions.size() * static_cast<std::size_t>(measured),
                     program_);
  if (random) draw_threads();
  session_.run(first_batch, batches, program_);
  done_ += batches;
  report_.batches += batches;
  if (done_ == kWarmUp + measured) end_step();
  return batches;
}

void AllReduceTuning::end_step() {
  const Timeline measured = timeline();
  session_.measure(0, program_);
  const Program& p = session_.program(program_);
  for (std::size_t s = 0; is_root() && s < report_.stages.size(); ++s) {
    StageAllReduces& stage = report_.stages[s];
    if (stage.layers.empty()) continue;
    const int number = static_cast<int>(s);
    if (step_ == Step::layers) {
      MeasuredBackward found = measured_backward(p, measured, std::move(stage.layers), number);
      stage.layers = std::move(found.layers);
      stage.forward_ms = found.forward_ms;
    } else if (step_ == Step::random_plans) {
      for (BackwardSample& sample : measured_all_reduces(p, measured, number))
        samples_[s].push_back(std::move(sample));
    } else {
      stage.measured_ms = measured_backward_ms(p, measured, number);
    }
  }
  switch (step_) {
    case Step::layers: step_ = Step::random_plans; break;
    case Step::random_plans:
      if (groupings_ == kGroupings) step_ = Step::result;
      break;
    case Step::result: step_ = Step::finished; return;
    case Step::finished: return;
  }
  if (step_ == Step::random_plans) ++groupings_;
  use(step_ == Step::random_plans ? random_groups() : planned_groups());
}

// From two groups to one for each layer, so that all-reduces have many sizes.
std::vector<FusionGroup> AllReduceTuning::random_groups() {
  std::vector<FusionGroup> groups;
  for (const StageAllReduces& stage : report_.stages) {
    const auto layers = static_cast<double>(stage.layers.size());
    const double share = kGroupings > 1 ? static_cast<double>(groupings_ - 1) / (kGroupings - 1) : 1;
    const double wanted = std::pow(std::max(layers, 2.0), share) * std::pow(2.0, 1 - share);
    bool first = true;
    for (const GradientLayer& layer : stage.layers) {
      const double u = static_cast<double>(rng_() >> 11) * 0x1p-53;
      if (std::exchange(first, false) || u * layers < wanted) groups.emplace_back();
      groups.back().parameters.insert(groups.back().parameters.end(), layer.parameters.begin(),
                                      layer.parameters.end());
    }
  }
  return groups;
}

void AllReduceTuning::plan(StageAllReduces& stage) {
  const auto& samples = samples_[static_cast<std::size_t>(&stage - report_.stages.data())];
  stage.fit = fit_contention(without_short(samples), sum_of_times(stage.layers));
  const Contention& contention = stage.fit.contention;
  AllReduceProblem problem;
  problem.layers = stage.layers;
  problem.costs = {stage.fit.startup_ms, 2.0 * (replicas_ - 1) / replicas_, {}};
  for (const int r : options_.threads) try {
      problem.costs.choices.push_back(contention.at(r));
    } catch (const Error& e) {  // not drawn, or the fit stops computation beside so many
      report_.warnings.push_back(fmt::format("{} cannot be chosen: {}", counted(r, "thread"), e.what()));
    }
  if (problem.costs.choices.empty())
    throw Error("the fit of the measured all-reduces leaves no number of threads to choose");
  problem.baseline = [first = problem.costs.choices[0]](double) { return first; };
  std::string policy = options_.policy;
  if (const auto violated = violated_assumptions(problem); policy == "libra" && !violated.empty()) {
    report_.warnings.push_back(
        fmt::format("libra assumes what the measured all-reduces break, so mg-opt plans them: {}",
                    fmt::join(violated, "; ")));
    policy = "mg-opt";
  }
  stage.plan = all_reduce_policy(policy).plan(problem);
  stage.plan.policy = policy;
  stage.predicted = {{policy, stage.plan.predicted.backward_ms}};
  for (const char* other : {"libra", "mg-opt", "wfbp", "ddp", "se"})
    if (other != policy)
      stage.predicted.emplace_back(other, all_reduce_policy(other).plan(problem).predicted.backward_ms);
}

// Rank `root` plans, and sends the plan to all.
std::vector<FusionGroup> AllReduceTuning::planned_groups() {
  std::vector<SentGroup> sent;
  if (is_root())
    for (std::size_t s = 0; s < report_.stages.size(); ++s) {
      if (report_.stages[s].layers.empty()) continue;
      plan(report_.stages[s]);
      for (const AllReduceGroup& g : report_.stages[s].plan.groups)
        sent.push_back({static_cast<std::int32_t>(s), g.first_layer, g.last_layer, g.rates.threads});
    }
  if (Comm* const talk = options_.talk) {
    std::vector<int> everyone(static_cast<std::size_t>(talk->size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    std::int64_t count = std::ssize(sent);
    talk->broadcast(&count, sizeof count, options_.root, everyone, kSessionChannel);
    sent.resize(static_cast<std::size_t>(count));
    talk->broadcast(sent.data(), count * std::int64_t{sizeof(SentGroup)}, options_.root, everyone,
                    kSessionChannel);
  }
  std::vector<FusionGroup> groups;
  for (const SentGroup& g : sent) {
    FusionGroup& group = groups.emplace_back();
    group.threads = g.threads;
    const auto& layers = report_.stages[static_cast<std::size_t>(g.stage)].layers;
    for (int l = g.first_layer; l <= g.last_layer; ++l)
      for (const std::string& parameter : layers[static_cast<std::size_t>(l)].parameters)
        group.parameters.push_back(parameter);
  }
  return groups;
}

}  // namespace tandem
