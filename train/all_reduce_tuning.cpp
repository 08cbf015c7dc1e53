#include <tandem/train/all_reduce_tuning.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

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
constexpr std::int64_t kBatchesOfSaved = kWarmUp + kResultBatches;  // to plan from a saved measurement
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

// A group as it travels from the rank that plans to the others.
struct SentGroup {
  std::int32_t device, first_layer, last_layer, threads;
  double earliest_ms;
};

// What the report compares the plan with.
constexpr std::array kCompared{"libra", "mg-opt", "ddp", "wfbp", "se"};

// These plan by LIBRA's model, with its assumptions.
bool is_libras(const std::string& policy) { return policy == "libra" || policy == "libra-m"; }

AllReduceOptions with_rising_threads(AllReduceOptions options) {
  check(options);
  if (options.policy.empty() || options.policy == "auto")
    throw Error(fmt::format("all_reduces.policy is '{}'; name one that plans", options.policy));
  const std::set<int> threads(options.threads.begin(), options.threads.end());
  options.threads.assign(threads.begin(), threads.end());
  return options;
}

}  // namespace

AllReduceTuning::AllReduceTuning(Session& session, Host& host, Build build, AllReduceKey key,
                                 AllReduceOptions options, std::int64_t end, const RankTalk& talk)
    : session_(session),
      host_(host),
      build_(std::move(build)),
      options_(with_rising_threads(std::move(options))),
      end_(end),
      talk_(talk),
      key_(std::move(key)),
      samples_(key_.layers.size()),
      why_unfit_(talk_.is_root() && options_.known ? why_known_is_unfit() : "") {}

AllReduceTuning::~AllReduceTuning() = default;

// Those that have gradients to reduce.
std::vector<std::size_t> AllReduceTuning::devices() const {
  std::vector<std::size_t> devices;
  for (std::size_t d = 0; d < key_.layers.size(); ++d)
    if (!key_.layers[d].empty()) devices.push_back(d);
  return devices;
}

// Adds a warning about what was measured.
void AllReduceTuning::doubt(const std::string& what) {
  report_.warnings.push_back(what + "; was the machine busy while the all-reduces were measured?");
  report_.is_doubtful = true;
}

// Empty if a saved measurement is of a run like this one. If the saved run could choose a number of threads
// that has no rates, it left that out, as `plan` does.
std::string AllReduceTuning::why_known_is_unfit() const {
  std::string why = difference(options_.known->key, key_);
  for (const std::size_t d : why.empty() ? devices() : std::vector<std::size_t>()) {
    const AllReduceProfile& known = options_.known->devices[d].profile;
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
  for (const std::size_t d : devices()) {
    AllReduceProfile& profile = report_.devices[d].profile;
    const AllReduceProfile& known = options_.known->devices[d].profile;
    for (std::size_t l = 0; l < known.layers.size(); ++l)
      profile.layers[l].compute_ms = known.layers[l].compute_ms;
    profile.contention = known.contention;
    profile.hop_latency_ms = known.hop_latency_ms;
    profile.forward_ms = known.forward_ms;
  }
}

void AllReduceTuning::begin(std::int64_t left) {
  report_ = {.key = key_, .reason = report_.reason};
  for (const auto& layers : key_.layers)
    report_.devices.push_back({.profile = {.layers = layers, .batch_size = key_.batch_size}});
  for (auto& samples : samples_) samples.clear();
  groupings_ = used_groupings_ = drifted_ = 0;
  const bool uses_known = talk_.from_root(options_.known && why_unfit_.empty() && !distrusts_known_) != 0;
  const bool lags = session_.program().max_lag > 0;  // then the same batches can come again
  if (const std::int64_t needs = uses_known ? kBatchesOfSaved : kMostTuningBatches; left < needs && !lags)
    return give_up(
        fmt::format("{} {} left, and it takes {}", counted(left, "batch"), left == 1 ? "is" : "are", needs));
  if (uses_known) {
    if (talk_.is_root()) take_known();
    report_.is_saved = true;
    return use_plan();
  }
  step_ = Step::layers;
  if (const std::string why = use(all_together()); !why.empty()) give_up(why);
}

// The next call of `run` measures all again.
void AllReduceTuning::begin_again(const std::string& reason) {
  report_.reason = reason;
  distrusts_known_ = true;
  step_ = Step::begin;
}

// Goes on with a Program of these groups instead of the last one. If a rank cannot, as for lack of memory,
// all go on with the last one. Returns what prevents it, on all ranks.
std::string AllReduceTuning::use(const std::vector<FusionGroup>& groups) {
  done_ = 0;
  std::optional<Program> built;
  ProgramHandle added;
  std::string why = talk_.on_all([&] { built = build_(groups); });  // none waits in `add` for one that failed
  if (why.empty()) why = talk_.on_all([&] { added = session_.add(std::move(*built), host_); });
  if (why.empty()) std::swap(program_, added);
  if (added != ProgramHandle()) session_.drop(added);
  return why;
}

void AllReduceTuning::give_up(const std::string& why) {
  report_.warnings.push_back("the all-reduces are not planned: " + why);
  if (program_ != ProgramHandle()) session_.drop(std::exchange(program_, ProgramHandle()));
  for (DeviceAllReduces& d : report_.devices) d.plan = {}, d.predicted.clear();
  step_ = Step::planned;
  has_plan_ = false;
}

void AllReduceTuning::use_plan() {
  if (const std::string why = talk_.on_root([&] {
        for (const std::size_t d : devices()) plan(report_.devices[d]);
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
  std::string why;
  while (groupings_++ < kGroupings) {
    why = use(random_groups());
    if (why.empty()) {
      ++used_groupings_;
      return;
    }
  }
  if (used_groupings_ > 0)
    why = talk_.on_root([&] {
      for (const std::size_t d : devices()) fit(d);
    });
  if (!why.empty()) return give_up(why);
  use_plan();
}

void AllReduceTuning::measure(std::int64_t batches) {
  session_.measure(session_.program(program_).instructions.size() * static_cast<std::size_t>(batches),
                   program_);
}

Timeline AllReduceTuning::timeline() {
  Timeline measured = session_.timeline(talk_.root(), program_);
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

std::int64_t AllReduceTuning::run(std::int64_t first_batch, std::int64_t most, RunLimit* limit) {
  if (most < 1) return 0;
  if (step_ == Step::begin) {
    begin(end_ - first_batch);
    if (is_planned()) return 0;  // so that the caller hears at once that there is no plan
  }
  if (is_planned()) {
    done_ += most;
    const bool looks = has_plan_ && options_.drift && done_ >= kLeastBatchesPerPlan && most >= kResultBatches;
    if (looks) measure(kResultBatches);
    const std::int64_t ran = session_.run(first_batch, most, program_, limit);
    if (looks && ran == most) look_for_drift(end_ - first_batch - most);
    return ran;
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
  const std::int64_t ran = session_.run(first_batch, batches, program_, limit);
  done_ += ran;
  report_.batches += ran;
  if (done_ == kWarmUp + measured) end_step();
  return ran;
}

// On the root rank: takes what the batches of a step tell.
void AllReduceTuning::learn(const Timeline& measured) {
  const Program& p = session_.program(program_);
  for (const std::size_t d : devices()) {
    DeviceAllReduces& device = report_.devices[d];
    const int number = static_cast<int>(d);
    if (step_ == Step::layers) {
      MeasuredBackward found = measured_backward(p, measured, key_.layers[d], number);
      device.profile.layers = std::move(found.layers);
      device.profile.forward_ms = found.forward_ms;
    } else if (step_ == Step::random_plans) {
      std::ranges::move(measured_all_reduces(p, measured, number), std::back_inserter(samples_[d]));
    } else {
      device.measured_ms = measured_backward_ms(p, measured, number);
      std::vector<double> computed;
      for (const BackwardSample& sample : measured_all_reduces(p, measured, number))
        computed.push_back(sample.compute_ms);
      device.computed_ms = median(computed);
    }
  }
}

void AllReduceTuning::end_step() {
  const Timeline measured = timeline();
  if (const std::string why = talk_.on_root([&] { learn(measured); }); !why.empty()) return give_up(why);
  if (step_ != Step::result) return use_next_grouping();
  step_ = Step::planned;
  const std::string off = talk_.from_root(talk_.is_root() ? far_off() : "");
  if (off.empty()) return;
  if (report_.is_saved) return begin_again(off + " from the saved measurement");
  doubt(off);
}

// On the root rank: says what differs from the prediction by more than the options allow.
std::string AllReduceTuning::far_off() const {
  std::string off;
  const auto look = [&](double is, double predicted, const char* what) {
    if (std::abs(std::log(is / predicted)) > std::log(options_.far_off))
      off += fmt::format("{}{} takes {:.2f} ms where {:.2f} were predicted", off.empty() ? "" : ", and ",
                         what, is, predicted);
  };
  for (const std::size_t d : devices()) {
    const DeviceAllReduces& device = report_.devices[d];
    look(device.measured_ms, device.plan.predicted.backward_ms, "backward");
    // This waits for no timer.
    look(device.computed_ms, device.plan.predicted.compute_ms, "computing the gradients");
  }
  return off;
}

void AllReduceTuning::look_for_drift(std::int64_t left) {
  const Timeline measured = timeline();
  std::string reason;
  const auto look = [&] {
    for (const std::size_t d : devices()) {
      const double planned = report_.devices[d].measured_ms,
                   now = measured_backward_ms(session_.program(program_), measured, static_cast<int>(d));
      if (std::abs(now / planned - 1) > *options_.drift)
        reason =
            fmt::format("backward takes {:.2f} ms, and took {:.2f} ms when it was planned", now, planned);
    }
  };
  if (!talk_.on_root(look).empty()) return;  // not measured whole
  reason = talk_.from_root(reason);
  drifted_ = reason.empty() ? 0 : drifted_ + 1;
  if (drifted_ >= 2 && left >= kLeastBatchesPerPlan) begin_again(reason);
}

std::vector<FusionGroup> AllReduceTuning::all_together() const {
  std::vector<FusionGroup> groups;
  for (const std::size_t d : devices()) {
    groups.emplace_back();
    for (const GradientLayer& layer : key_.layers[d])
      groups.back().parameters.insert(groups.back().parameters.end(), layer.parameters.begin(),
                                      layer.parameters.end());
  }
  return groups;
}

// From two groups to one for each layer, so that all-reduces have many sizes.
std::vector<FusionGroup> AllReduceTuning::random_groups() {
  std::vector<FusionGroup> groups;
  for (const std::size_t d : devices()) {
    const auto& all = key_.layers[d];
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

void AllReduceTuning::fit(std::size_t device) {
  DeviceAllReduces& d = report_.devices[device];
  const std::vector<BackwardSample>& samples = samples_[device];
  ContentionFit fit = fit_contention(samples, d.profile.compute_ms(), untold_bytes(samples));
  d.profile.contention = std::move(fit.contention);
  d.profile.hop_latency_ms = fit.startup_ms / (2.0 * (key_.ranks - 1));
  d.error_of_fit = fit.error;
}

void AllReduceTuning::plan(DeviceAllReduces& device) {
  // Others were not drawn, or the fit stops computation beside so many.
  const std::vector<int> allowed = device.profile.contention.choices(options_.threads, report_.warnings);
  if (allowed.empty())
    throw Error("the fit of the measured all-reduces leaves no number of threads to choose");
  device.profile.baseline = ThreadTable{{}, allowed[0]};
  device.profile.comm_threads = options_.threads;
  const AllReduceProblem problem = problem_of(device.profile, key_.ranks, allowed);
  std::vector<AllReducePlan> plans;  // the first is taken
  const auto add = [&](const std::string& policy) {
    plans.push_back(all_reduce_policy(policy).plan(problem));
    plans.back().policy = policy;
  };
  add(options_.policy);
  for (const char* policy : kCompared)
    if (policy != options_.policy) add(policy);
  std::vector<std::string> doubts;
  std::string planned = "all-reduces";
  if (is_libras(options_.policy)) doubts = violated_assumptions(problem, kErrorOfFit);
  if (!doubts.empty()) {
    const auto others =
        std::ranges::stable_partition(plans, [](const AllReducePlan& p) { return is_libras(p.policy); });
    std::swap(plans.front(), *std::ranges::min_element(
                                 others, {}, [](const AllReducePlan& p) { return p.predicted.backward_ms; }));
    planned = fmt::format("{} plans the all-reduces, since they do not fit the model of {}",
                          plans.front().policy, options_.policy);
  }
  for (const ThreadRates& r : problem.costs.choices)
    if (r.compute_rate < kStandstill)
      doubts.push_back(
          fmt::format("computation seems to stand still beside those with {}", counted(r.threads, "thread")));
  if (!doubts.empty())
    doubt(fmt::format("{}: {}{}", planned, doubts[0],
                      doubts.size() > 1 ? fmt::format(", and {} more", doubts.size() - 1) : ""));
  for (const AllReducePlan& p : plans) device.predicted.emplace_back(p.policy, p.predicted.backward_ms);
  device.plan = std::move(plans.front());
}

// The plan of the root rank, which sends it to all.
std::vector<FusionGroup> AllReduceTuning::planned_groups() {
  std::vector<SentGroup> sent;
  for (const std::size_t d : devices())
    for (const AllReduceGroup& g : report_.devices[d].plan.groups)  // none on other ranks
      sent.push_back({static_cast<std::int32_t>(d), g.first_layer, g.last_layer, g.rates.threads,
                      std::min(g.earliest_ms, kMostTimerMs)});
  sent.resize(static_cast<std::size_t>(talk_.from_root(std::ssize(sent))));
  talk_.broadcast(sent.data(), std::ssize(sent) * std::int64_t{sizeof(SentGroup)});
  std::vector<FusionGroup> groups;
  for (const SentGroup& g : sent)
    std::ranges::move(fusion_groups(key_.layers[static_cast<std::size_t>(g.device)],
                                    {{g.first_layer, g.last_layer, {.threads = g.threads}, g.earliest_ms}}),
                      std::back_inserter(groups));
  return groups;
}

}  // namespace tandem
