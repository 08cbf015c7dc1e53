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
  double earliest_ms;
};

}  // namespace

AllReduceTuning::AllReduceTuning(Session& session, Host& host, Build build, AllReduceReport key,
                                 Options options)
    : session_(session),
      host_(host),
      build_(std::move(build)),
      options_(std::move(options)),
      key_(std::move(key)),
      samples_(key_.stages.size()) {
  if (all_reduce_policy(options_.policy).name == "mg-cf")
    throw Error("the policy 'mg-cf' assumes all-reduces that slow nothing down: it is only simulated");
}

AllReduceTuning::~AllReduceTuning() = default;

bool AllReduceTuning::is_root() const { return !options_.talk || options_.talk->rank() == options_.root; }

std::int64_t AllReduceTuning::from_root(std::int64_t value) {
  if (Comm* const talk = options_.talk) {
    std::vector<int> everyone(static_cast<std::size_t>(talk->size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    talk->broadcast(&value, sizeof value, options_.root, everyone, kSessionChannel);
  }
  return value;
}

// Those that have gradients to reduce.
std::vector<std::size_t> AllReduceTuning::stages() const {
  std::vector<std::size_t> stages;
  for (std::size_t s = 0; s < key_.stages.size(); ++s)
    if (!key_.stages[s].profile.layers.empty()) stages.push_back(s);
  return stages;
}

// Whether a saved measurement is of a run like this one; on all ranks.
bool AllReduceTuning::known_fits() {
  bool fits = false;
  if (is_root() && options_.known && report_.reason.empty()) {
    std::string why = difference(*options_.known, key_);
    for (const std::size_t s : why.empty() ? stages() : std::vector<std::size_t>()) try {
        for (const int r : options_.threads) options_.known->stages[s].profile.contention.at(r);
      } catch (const Error& e) {
        why = e.what();
      }
    fits = why.empty();
    if (!fits)
      report_.warnings.push_back(
          fmt::format("the saved all-reduces do not fit this run, which measures its own: {}", why));
  }
  return from_root(fits) != 0;
}

void AllReduceTuning::begin() {
  const std::string reason = report_.reason;
  report_ = key_;
  report_.reason = reason;
  for (auto& samples : samples_) samples.clear();
  groupings_ = drifted_ = 0;
  if (!known_fits()) {
    step_ = Step::layers;
    return use(all_together());
  }
  for (const std::size_t s : stages()) {
    if (!is_root()) break;
    StageAllReduces& stage = report_.stages[s];
    const AllReduceProfile& known = options_.known->stages[s].profile;
    for (std::size_t l = 0; l < known.layers.size(); ++l)
      stage.profile.layers[l].compute_ms = known.layers[l].compute_ms;
    stage.profile.contention = known.contention;
    stage.profile.hop_latency_ms = known.hop_latency_ms;
    stage.profile.forward_ms = known.forward_ms;
  }
  report_.is_saved = true;
  step_ = Step::result;
  use(planned_groups());
}

// Goes on with a Program of these groups instead of the last one.
void AllReduceTuning::use(const std::vector<FusionGroup>& groups) {
  const ProgramHandle before = program_;
  program_ = session_.add(build_(groups), host_);
  if (before != ProgramHandle()) session_.drop(before);
  done_ = 0;
}

void AllReduceTuning::measure(std::int64_t batches) {
  session_.measure(session_.program(program_).instructions.size() * static_cast<std::size_t>(batches),
                   program_);
}

Timeline AllReduceTuning::timeline() {
  Timeline measured = session_.timeline(options_.talk ? options_.root : 0, program_);
  session_.measure(0, program_);
  return measured;
}

// Draws how many threads each all-reduce of the next batches has. All ranks draw the same numbers.
void AllReduceTuning::draw_threads() {
  std::map<std::int64_t, int> threads;
  for (const std::int64_t channel : channels_of_gradients(session_.program(program_)))
    threads[channel] = options_.threads[rng_() % options_.threads.size()];
  session_.set_threads(threads, program_);
}

std::int64_t AllReduceTuning::run(std::int64_t first_batch, std::int64_t most) {
  if (most < 1) return 0;
  if (step_ == Step::begin) begin();
  if (is_planned()) {
    done_ += most;
    const bool looks = options_.drift && done_ >= kLeastBatchesPerPlan && most >= kResultBatches;
    if (looks) measure(kResultBatches);
    session_.run(first_batch, most, program_);
    if (looks) look_for_drift();
    return most;
  }
  const bool random = step_ == Step::random_plans, lags = session_.program(program_).max_lag > 0;
  const std::int64_t measured = step_ == Step::layers ? kLayerBatches
                                : random              ? kRandomBatches
                                                      : kResultBatches;
  const std::int64_t left = done_ < kWarmUp ? kWarmUp - done_ : kWarmUp + measured - done_;
  // Other threads need another run. But with several batches in flight, single batches are not typical.
  const std::int64_t batches = std::min({left, most, random && !lags ? 1 : left});
  if (done_ == kWarmUp) measure(measured);
  if (random) draw_threads();
  session_.run(first_batch, batches, program_);
  done_ += batches;
  report_.batches += batches;
  if (done_ == kWarmUp + measured) end_step();
  return batches;
}

void AllReduceTuning::end_step() {
  const Timeline measured = timeline();
  const Program& p = session_.program(program_);
  for (const std::size_t s : stages()) {
    if (!is_root()) break;
    StageAllReduces& stage = report_.stages[s];
    const int number = static_cast<int>(s);
    if (step_ == Step::layers) {
      MeasuredBackward found = measured_backward(p, measured, std::move(stage.profile.layers), number);
      stage.profile.layers = std::move(found.layers);
      stage.profile.forward_ms = found.forward_ms;
    } else if (step_ == Step::random_plans) {
      for (BackwardSample& sample : measured_all_reduces(p, measured, number))
        samples_[s].push_back(std::move(sample));
      if (groupings_ == kGroupings) fit(s);
    } else {
      stage.measured_ms = measured_backward_ms(p, measured, number);
    }
  }
  if (step_ == Step::result) {
    step_ = Step::planned;
  } else if (groupings_ == kGroupings) {
    step_ = Step::result;
    use(planned_groups());
  } else {
    step_ = Step::random_plans;
    ++groupings_;
    use(random_groups());
  }
}

void AllReduceTuning::look_for_drift() {
  const Timeline measured = timeline();
  std::string reason;
  for (const std::size_t s : stages()) {
    if (!is_root()) break;
    const double planned = report_.stages[s].measured_ms,
                 now = measured_backward_ms(session_.program(program_), measured, static_cast<int>(s));
    if (std::abs(now / planned - 1) > *options_.drift)
      reason = fmt::format("backward takes {:.2f} ms, and {:.2f} ms when it was planned", now, planned);
  }
  drifted_ = from_root(!reason.empty()) != 0 ? drifted_ + 1 : 0;
  if (drifted_ < 2) return;
  report_.reason = reason.empty() ? "backward takes another time" : reason;  // not empty on any rank
  step_ = Step::begin;
}

std::vector<FusionGroup> AllReduceTuning::all_together() const {
  std::vector<FusionGroup> groups;
  for (const std::size_t s : stages()) {
    groups.emplace_back();
    for (const GradientLayer& layer : key_.stages[s].profile.layers)
      groups.back().parameters.insert(groups.back().parameters.end(), layer.parameters.begin(),
                                      layer.parameters.end());
  }
  return groups;
}

// From two groups to one for each layer, so that all-reduces have many sizes.
std::vector<FusionGroup> AllReduceTuning::random_groups() {
  std::vector<FusionGroup> groups;
  for (const std::size_t s : stages()) {
    const auto& all = key_.stages[s].profile.layers;
    const auto layers = static_cast<double>(all.size());
    const double share = kGroupings > 1 ? static_cast<double>(groupings_ - 1) / (kGroupings - 1) : 1;
    const double wanted = std::pow(std::max(layers, 2.0), share) * std::pow(2.0, 1 - share);
    bool first = true;
    for (const GradientLayer& layer : all) {
      const double u = static_cast<double>(rng_() >> 11) * 0x1p-53;
      if (std::exchange(first, false) || u * layers < wanted) groups.emplace_back();
      groups.back().parameters.insert(groups.back().parameters.end(), layer.parameters.begin(),
                                      layer.parameters.end());
    }
  }
  return groups;
}

void AllReduceTuning::fit(std::size_t stage) {
  StageAllReduces& s = report_.stages[stage];
  ContentionFit fit = fit_contention(without_short(samples_[stage]), s.profile.compute_ms());
  s.profile.contention = std::move(fit.contention);
  s.profile.hop_latency_ms = fit.startup_ms / (2.0 * (key_.ranks - 1));
  s.error_of_fit = fit.error;
}

void AllReduceTuning::plan(StageAllReduces& stage) {
  std::vector<int> allowed;
  for (const int r : options_.threads) try {
      allowed.push_back(stage.profile.contention.at(r).threads);
    } catch (const Error& e) {  // not drawn, or the fit stops computation beside so many
      report_.warnings.push_back(fmt::format("{} cannot be chosen: {}", counted(r, "thread"), e.what()));
    }
  if (allowed.empty())
    throw Error("the fit of the measured all-reduces leaves no number of threads to choose");
  stage.profile.baseline = ThreadTable{{}, allowed[0]};
  const AllReduceProblem problem = problem_of(stage.profile, key_.ranks, allowed);
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
  for (const std::size_t s : stages()) {
    if (!is_root()) break;
    plan(report_.stages[s]);
    for (const AllReduceGroup& g : report_.stages[s].plan.groups)
      sent.push_back(
          {static_cast<std::int32_t>(s), g.first_layer, g.last_layer, g.rates.threads, g.earliest_ms});
  }
  sent.resize(static_cast<std::size_t>(from_root(std::ssize(sent))));
  if (Comm* const talk = options_.talk) {
    std::vector<int> everyone(static_cast<std::size_t>(talk->size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    talk->broadcast(sent.data(), std::ssize(sent) * std::int64_t{sizeof(SentGroup)}, options_.root, everyone,
                    kSessionChannel);
  }
  std::vector<FusionGroup> groups;
  for (const SentGroup& g : sent)
    std::ranges::move(fusion_groups(key_.stages[static_cast<std::size_t>(g.stage)].profile.layers,
                                    {{g.first_layer, g.last_layer, {.threads = g.threads}, g.earliest_ms}}),
                      std::back_inserter(groups));
  return groups;
}

}  // namespace tandem
