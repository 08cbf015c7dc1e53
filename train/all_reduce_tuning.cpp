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
#include <tandem/dist/median.h>
#include <tandem/ops/collective.h>

namespace tandem {

using namespace engine;

namespace {

// Of each Program, the first batch is not measured: it allocates.
constexpr std::int64_t kWarmUp = 1, kLayerBatches = 5, kRandomBatches = 6, kResultBatches = 5;
constexpr int kGroupings = 4;
constexpr double kErrorOfFit = 0.05;   // a fit may break an assumption of LIBRA by so much
constexpr double kMostTimerMs = 10e3;  // a saved measurement may be of a far slower backward pass
constexpr double kStandstill = 0.05;   // speed of a computation that no all-reduce can cause
static_assert(2 * kWarmUp + kLayerBatches + kResultBatches + kGroupings * (kWarmUp + kRandomBatches) <=
              kMostTuningBatches);

std::vector<std::int64_t> channels_of_all_reduces(const Program& p) {
  std::vector<std::int64_t> channels;
  for (const Instruction& i : p.instructions)
    if (as<AllReduceOp>(i)) channels.push_back(i.tag.channel);
  return channels;
}

// All-reduces that send no more tell nothing of p and q. Short sums, which travel in first messages, do not
// take Eq. 3's time: the rank that calls last has the others' parts already. If there are longer ones, p and
// q are of those.
double untold_bytes(const std::vector<BackwardSample>& samples) {
  constexpr double kShortBytes = 16 << 10;
  constexpr std::ptrdiff_t kEnough = 12;
  std::ptrdiff_t longer = 0;
  for (const BackwardSample& s : samples)
    longer += std::ranges::count_if(s.all_reduces,
                                    [](const AllReduceSample& r) { return r.sent_bytes > kShortBytes; });
  return longer >= kEnough ? kShortBytes : 0;
}

// Returns the message of the Error that f throws, or nothing.
std::string message_of(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const Aborted&) {
    throw;  // the run has ended
  } catch (const Error& e) {
    return e.what();
  }
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
      samples_(key_.stages.size()),
      why_unfit_(is_root() && options_.known ? why_known_is_unfit() : "") {
  if (all_reduce_policy(options_.policy).name == "mg-cf")
    throw Error("the policy 'mg-cf' assumes all-reduces that slow nothing down: it is only simulated");
}

AllReduceTuning::~AllReduceTuning() = default;

bool AllReduceTuning::is_root() const { return !options_.talk || options_.talk->rank() == options_.root; }

void AllReduceTuning::broadcast(void* data, std::int64_t bytes) {
  Comm* const talk = options_.talk;
  if (!talk) return;
  std::vector<int> everyone(static_cast<std::size_t>(talk->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  talk->broadcast(data, bytes, options_.root, everyone, kSessionChannel);
}

std::int64_t AllReduceTuning::from_root(std::int64_t value) {
  broadcast(&value, sizeof value);
  return value;
}

// Calls f on the root rank. Returns, on all ranks, what prevented it, or nothing.
std::string AllReduceTuning::on_root(const std::function<void()>& f) {
  std::string problem;
  if (is_root()) problem = message_of(f);
  return from_root(!problem.empty()) != 0 && problem.empty() ? "see the root rank" : problem;
}

// Those that have gradients to reduce.
std::vector<std::size_t> AllReduceTuning::stages() const {
  std::vector<std::size_t> stages;
  for (std::size_t s = 0; s < key_.stages.size(); ++s)
    if (!key_.stages[s].profile.layers.empty()) stages.push_back(s);
  return stages;
}

// Adds a warning about what was measured.
void AllReduceTuning::doubt(const std::string& what) {
  report_.warnings.push_back(what + ": was the machine busy while all-reduces were measured?");
  report_.is_doubtful = true;
}

// Empty if a saved measurement is of a run like this one. If the saved run could choose a number of threads
// that has no rates, it left that out, as `plan` does.
std::string AllReduceTuning::why_known_is_unfit() const {
  std::string why = difference(*options_.known, key_);
  for (const std::size_t s : why.empty() ? stages() : std::vector<std::size_t>()) {
    const AllReduceProfile& known = options_.known->stages[s].profile;
    why = message_of([&] {
      all_reduce_profile_of("its profile (null: not finite)", to_json(known));  // checks it
      std::vector<std::string> missing;
      const bool some = !known.contention.choices(options_.threads, missing).empty();
      for (const int r : options_.threads)
        if (!some || std::ranges::find(known.comm_threads, r) == known.comm_threads.end())
          known.contention.at(r);
    });
    if (!why.empty()) break;
  }
  return why;
}

void AllReduceTuning::take_known() {
  for (const std::size_t s : stages()) {
    AllReduceProfile& profile = report_.stages[s].profile;
    const AllReduceProfile& known = options_.known->stages[s].profile;
    for (std::size_t l = 0; l < known.layers.size(); ++l)
      profile.layers[l].compute_ms = known.layers[l].compute_ms;
    profile.contention = known.contention;
    profile.hop_latency_ms = known.hop_latency_ms;
    profile.forward_ms = known.forward_ms;
  }
}

void AllReduceTuning::begin(std::int64_t left) {
  const std::string reason = report_.reason;
  report_ = key_;
  report_.reason = reason;
  for (auto& samples : samples_) samples.clear();
  groupings_ = drifted_ = 0;
  const bool uses_known = from_root(options_.known && why_unfit_.empty() && reason.empty()) != 0;
  const bool lags = session_.program().max_lag > 0;  // then the same batches can come again
  if (const std::int64_t needs = uses_known ? kWarmUp + kResultBatches : kMostTuningBatches;
      left < needs && !lags)
    return give_up(
        fmt::format("{} {} left, and it takes {}", counted(left, "batch"), left == 1 ? "is" : "are", needs));
  if (uses_known) {
    if (is_root()) take_known();
    report_.is_saved = true;
    return use_plan();
  }
  step_ = Step::layers;
  if (const std::string why = use(all_together()); !why.empty()) give_up(why);
}

// Goes on with a Program of these groups instead of the last one. Returns what prevents it, on all ranks
// alike: the Program may need too much memory. Then it goes on with the last one.
std::string AllReduceTuning::use(const std::vector<FusionGroup>& groups) {
  const ProgramHandle before = program_;
  done_ = 0;
  std::string why = message_of([&] { program_ = session_.add(build_(groups), host_); });
  if (why.empty() && before != ProgramHandle()) session_.drop(before);
  return why;
}

void AllReduceTuning::give_up(const std::string& why) {
  report_.warnings.push_back("the all-reduces are not planned: " + why);
  if (program_ != ProgramHandle()) session_.drop(std::exchange(program_, ProgramHandle()));
  for (StageAllReduces& s : report_.stages) s.plan = {}, s.predicted.clear();
  step_ = Step::planned;
  has_plan_ = false;
}

void AllReduceTuning::use_plan() {
  if (const std::string why = on_root([&] {
        for (const std::size_t s : stages()) plan(report_.stages[s]);
      });
      !why.empty())
    return give_up(why);
  step_ = Step::result;
  has_plan_ = true;
  if (const std::string why = use(planned_groups()); !why.empty()) give_up(why);
}

// Those that need too much memory are left out.
void AllReduceTuning::use_next_grouping() {
  step_ = Step::random_plans;
  while (groupings_++ < kGroupings)
    if (use(random_groups()).empty()) return;
  if (const std::string why = on_root([&] {
        for (const std::size_t s : stages()) fit(s);
      });
      !why.empty())
    return give_up(why);
  use_plan();
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
  for (const std::int64_t channel : channels_of_all_reduces(session_.program(program_)))
    threads[channel] = options_.threads[rng_() % options_.threads.size()];
  session_.set_threads(threads, program_);
}

std::int64_t AllReduceTuning::run(std::int64_t first_batch, std::int64_t most) {
  if (most < 1) return 0;
  if (step_ == Step::begin) {
    begin(options_.end - first_batch);
    if (is_planned()) return 0;  // so that the caller hears at once that there is no plan
  }
  if (is_planned()) {
    done_ += most;
    const bool looks = has_plan_ && options_.drift && done_ >= kLeastBatchesPerPlan && most >= kResultBatches;
    if (looks) measure(kResultBatches);
    session_.run(first_batch, most, program_);
    if (looks) look_for_drift(options_.end - first_batch - most);
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

// On the root rank: takes what the batches of a step tell.
void AllReduceTuning::learn(const Timeline& measured) {
  const Program& p = session_.program(program_);
  for (const std::size_t s : stages()) {
    StageAllReduces& stage = report_.stages[s];
    const int number = static_cast<int>(s);
    if (step_ == Step::layers) {
      MeasuredBackward found = measured_backward(p, measured, key_.stages[s].profile.layers, number);
      stage.profile.layers = std::move(found.layers);
      stage.profile.forward_ms = found.forward_ms;
    } else if (step_ == Step::random_plans) {
      std::ranges::move(measured_all_reduces(p, measured, number), std::back_inserter(samples_[s]));
    } else {
      stage.measured_ms = measured_backward_ms(p, measured, number);
      std::vector<double> computed;
      for (const BackwardSample& sample : measured_all_reduces(p, measured, number))
        computed.push_back(sample.compute_ms);
      stage.computed_ms = median(computed);
    }
  }
}

void AllReduceTuning::end_step() {
  const Timeline measured = timeline();
  if (const std::string why = on_root([&] { learn(measured); }); !why.empty()) return give_up(why);
  if (step_ != Step::result) return use_next_grouping();
  step_ = Step::planned;
  std::string off;
  const auto look = [&](double is, double predicted, const char* what) {
    if (std::abs(std::log(is / predicted)) > std::log(options_.far_off))
      off += fmt::format("{}{} takes {:.2f} ms where {:.2f} were predicted", off.empty() ? "" : ", and ",
                         what, is, predicted);
  };
  for (const StageAllReduces& s : report_.stages) {
    if (s.plan.groups.empty()) continue;
    look(s.measured_ms, s.plan.predicted.backward_ms, "backward");
    look(s.computed_ms, s.plan.predicted.compute_ms, "computing the gradients");  // which waits for no timer
  }
  if (from_root(!off.empty()) == 0) return;
  if (!report_.is_saved) {
    if (is_root()) doubt(off);
    return;
  }
  report_.reason = off + " from the saved measurement";
  step_ = Step::begin;
}

void AllReduceTuning::look_for_drift(std::int64_t left) {
  const Timeline measured = timeline();
  std::string reason;
  const auto look = [&] {
    for (const std::size_t s : stages()) {
      const double planned = report_.stages[s].measured_ms,
                   now = measured_backward_ms(session_.program(program_), measured, static_cast<int>(s));
      if (std::abs(now / planned - 1) > *options_.drift)
        reason =
            fmt::format("backward takes {:.2f} ms, and took {:.2f} ms when it was planned", now, planned);
    }
  };
  if (!on_root(look).empty()) return;  // not measured whole
  drifted_ = from_root(!reason.empty()) != 0 ? drifted_ + 1 : 0;
  if (drifted_ < 2 || left < kLeastBatchesPerPlan) return;
  report_.reason = reason.empty() ? "the time of backward has changed" : reason;  // not empty on any rank
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
  ContentionFit fit = fit_contention(samples_[stage], s.profile.compute_ms(), untold_bytes(samples_[stage]));
  s.profile.contention = std::move(fit.contention);
  s.profile.hop_latency_ms = fit.startup_ms / (2.0 * (key_.ranks - 1));
  s.error_of_fit = fit.error;
}

void AllReduceTuning::plan(StageAllReduces& stage) {
  // Others were not drawn, or the fit stops computation beside so many.
  const std::vector<int> allowed = stage.profile.contention.choices(options_.threads, report_.warnings);
  if (allowed.empty())
    throw Error("the fit of the measured all-reduces leaves no number of threads to choose");
  stage.profile.baseline = ThreadTable{{}, allowed[0]};
  stage.profile.comm_threads = options_.threads;
  const AllReduceProblem problem = problem_of(stage.profile, key_.ranks, allowed);
  for (const char* name : {"libra", "mg-opt", "ddp", "wfbp", "se"})
    stage.predicted.emplace_back(name, all_reduce_policy(name).plan(problem).predicted.backward_ms);
  std::string policy = options_.policy;
  if (const auto violated = violated_assumptions(problem, kErrorOfFit);
      policy == "libra" && !violated.empty()) {
    policy = std::ranges::min_element(std::next(stage.predicted.begin()), stage.predicted.end(), {},
                                      &std::pair<std::string, double>::second)
                 ->first;
    doubt(fmt::format("libra assumes what the measured all-reduces break, so {} plans them: {}", policy,
                      fmt::join(violated, "; ")));
  }
  for (const ThreadRates& r : problem.costs.choices)
    if (r.compute_rate < kStandstill)
      doubt(fmt::format("beside all-reduces with {} computation seems to stand still",
                        counted(r.threads, "thread")));
  stage.plan = all_reduce_policy(policy).plan(problem);
  stage.plan.policy = policy;
  std::erase_if(stage.predicted, [&](const auto& p) { return p.first == policy; });
  stage.predicted.insert(stage.predicted.begin(), {policy, stage.plan.predicted.backward_ms});
}

// The plan of the root rank, which sends it to all.
std::vector<FusionGroup> AllReduceTuning::planned_groups() {
  std::vector<SentGroup> sent;
  for (const std::size_t s : stages())
    for (const AllReduceGroup& g : report_.stages[s].plan.groups)  // none on other ranks
      sent.push_back({static_cast<std::int32_t>(s), g.first_layer, g.last_layer, g.rates.threads,
                      std::min(g.earliest_ms, kMostTimerMs)});
  sent.resize(static_cast<std::size_t>(from_root(std::ssize(sent))));
  broadcast(sent.data(), std::ssize(sent) * std::int64_t{sizeof(SentGroup)});
  std::vector<FusionGroup> groups;
  for (const SentGroup& g : sent)
    std::ranges::move(fusion_groups(key_.stages[static_cast<std::size_t>(g.stage)].profile.layers,
                                    {{g.first_layer, g.last_layer, {.threads = g.threads}, g.earliest_ms}}),
                      std::back_inserter(groups));
  return groups;
}

}  // namespace tandem
