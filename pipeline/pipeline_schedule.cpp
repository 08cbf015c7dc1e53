#include <tandem/pipeline/pipeline_schedule.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>

namespace tandem::engine {
namespace {

int most(const std::vector<Task>& tasks, int Task::*member) {
  return tasks.empty() ? 0 : std::ranges::max(tasks, {}, member).*member;
}

// Of each task: the barriers of its device before it.
std::vector<int> ticks_of(const PipelineSchedule& s) {
  std::map<int, int> met;  // by device
  std::vector<int> ticks;
  for (const Task& t : s.tasks) {
    int& tick = met[s.stages[static_cast<std::size_t>(t.stage)].device];
    ticks.push_back(tick);
    if (t.phase == Phase::barrier) ++tick;
  }
  return ticks;
}

class Check {
 public:
  explicit Check(const PipelineSchedule& schedule) : s_(schedule) {
    if (s_.stages.empty()) throw Error("a schedule without stages");
    const int microbatches = s_.microbatches();
    std::map<int, std::vector<int>> barriers;  // the ticks that end, by device
    for (std::size_t i = 0; i < s_.tasks.size(); ++i) {
      const Task& t = s_.tasks[i];
      if (t.stage < 0 || t.stage >= count(s_.stages) || t.microbatch < 0 || t.lag < 0 || t.lane < 0)
        throw Error(
            fmt::format("the schedule's {}: a stage below {}, and a micro-batch, a lag and a lane of 0 "
                        "or more are possible",
                        to_string(t), s_.stages.size()));
      if (t.phase == Phase::barrier && (t.lag > 0 || t.lane > 0))
        throw Error(fmt::format("the schedule's {} has a lag or a lane: it holds all lanes, in every unit",
                                to_string(t)));
      const int parts = t.phase == Phase::update ? 1 : microbatches;
      if (t.phase != Phase::barrier && t.microbatch >= parts)
        throw Error(
            fmt::format("the schedule's {} has the micro-batch {} of {}", to_string(t), t.microbatch, parts));
      if (!at_.try_emplace({t.phase, t.stage, t.microbatch, t.array}, i).second)
        throw Error(fmt::format("the schedule has the {} twice", to_string(t)));
      if (t.phase != Phase::barrier) continue;
      std::vector<int>& met = barriers[device_of(t)];
      if (!met.empty() && met.back() > t.microbatch)
        throw Error(
            fmt::format("the schedule's {} comes after that of tick {}: each device meets them in order",
                        to_string(t), met.back()));
      met.push_back(t.microbatch);
    }
    ticks_ = ticks_of(s_);
  }

  void run() const {
    check_devices();
    for (int array = 0; array < s_.arrays(); ++array) check_array(array);
    check_lanes();
    check_barriers();
  }

 private:
  static int count(const auto& list) { return static_cast<int>(list.size()); }
  int device_of(const Task& t) const { return s_.stages[static_cast<std::size_t>(t.stage)].device; }

  void check_array(int array) const {
    const auto find = [&](Phase phase, int stage, int microbatch) {
      const auto found = at_.find({phase, stage, microbatch, array});
      if (found == at_.end())
        throw Error(
            fmt::format("the schedule has no {}", to_string(Task{phase, stage, microbatch, 0, 0, array})));
      return found->second;
    };
    const int last = count(s_.stages) - 1, microbatches = s_.microbatches();
    for (int k = 0; k <= last; ++k) {
      const std::size_t update = find(Phase::update, k, 0);
      for (int i = 0; i < microbatches; ++i) {
        const std::size_t forward = find(Phase::forward, k, i), backward = find(Phase::backward, k, i);
        if (k > 0) require(forward, find(Phase::forward, k - 1, i));
        if (i > 0) require(forward, find(Phase::forward, k, i - 1));
        require(backward, forward);
        if (k < last) require(backward, find(Phase::backward, k + 1, i));
        if (i > 0) require(backward, find(Phase::backward, k, i - 1));
        const WeightRule& weights = s_.stages[static_cast<std::size_t>(k)].weights;
        require_age(forward, update, weights.forward_age);
        if (weights.backward_age) require_age(backward, update, *weights.backward_age);
        require_prediction(forward, weights.forward_predicts);
        require_prediction(backward, weights.backward_predicts);
        if (!weights.backward_age && weights.backward_predicts > 0)
          throw Error(
              fmt::format("the schedule's {} predicts weights, and uses those of forward: give it an "
                          "age of its own",
                          to_string(s_.tasks[backward])));
      }
      require(update, find(Phase::backward, k, microbatches - 1));
    }
  }

  // A task ends before another begins if it works on the batch in an earlier unit, or in the same unit, is
  // listed before, and is in the same tick or an earlier one.
  void require(std::size_t later, std::size_t earlier) const {
    const Task &l = s_.tasks[later], &e = s_.tasks[earlier];
    if (e.lag < l.lag || (e.lag == l.lag && earlier < later && ticks_[earlier] <= ticks_[later])) return;
    throw Error(fmt::format("the schedule's {} ({}) needs the {} ({}), which comes after it", to_string(l),
                            when(later), to_string(e), when(earlier)));
  }

  void require_age(std::size_t reader, std::size_t update, int age) const {
    const Task& r = s_.tasks[reader];
    const int least = s_.tasks[update].lag - r.lag + (update < reader ? 0 : 1);
    if (age < std::max(1, least))
      throw Error(
          fmt::format("the schedule's {} reads weights of age {}, and by then the youngest have age {}",
                      to_string(r), age, std::max(1, least)));
  }

  void require_prediction(std::size_t task, int updates) const {
    if (updates < 0)
      throw Error(fmt::format("the schedule's {} predicts {} updates: there must be 0 or more",
                              to_string(s_.tasks[task]), updates));
  }

  void check_devices() const {
    std::set<int> devices;
    for (const PipelineStage& stage : s_.stages) devices.insert(stage.device);
    if (*devices.begin() != 0 || *devices.rbegin() != count(devices) - 1)
      throw Error(fmt::format("the schedule's stages lie on {}, which are not numbered 0 to {}",
                              counted(count(devices), "device"), count(devices) - 1));
  }

  void check_lanes() const {
    std::map<int, std::set<int>> lanes;  // by device
    for (const Task& t : s_.tasks)
      if (t.phase != Phase::barrier) lanes[device_of(t)].insert(t.lane);
    for (const Task& t : s_.tasks) {
      const std::set<int>& used = lanes[device_of(t)];
      if (t.lane > 0 && !used.contains(t.lane - 1))
        throw Error(
            fmt::format("the schedule's {} uses lane {}, and no task of its device uses lane {}: lanes "
                        "are numbered 0, 1, and so on",
                        to_string(t), t.lane, t.lane - 1));
    }
  }

  void check_barriers() const {
    std::map<int, std::vector<int>> devices;  // by tick
    for (const Task& t : s_.tasks)
      if (t.phase == Phase::barrier) devices[t.microbatch].push_back(device_of(t));
    for (const auto& [tick, met] : devices)
      for (int device = 0; device < s_.devices(); ++device)
        if (const auto tasks = std::ranges::count(met, device); tasks != 1)
          throw Error(
              fmt::format("the schedule's barrier after tick {} has {} on device {}: it needs one on "
                          "each device",
                          tick, counted(tasks, "task"), device));
  }

  std::string when(std::size_t task) const {
    const bool has_barriers = contains(s_.tasks, Phase::barrier, &Task::phase);
    return fmt::format("lag {}, number {} in the list{}", s_.tasks[task].lag, task,
                       has_barriers ? fmt::format(", tick {}", ticks_[task]) : "");
  }

  const PipelineSchedule& s_;
  std::map<std::tuple<Phase, int, int, int>, std::size_t> at_;  // positions in the list
  std::vector<int> ticks_;  // of each task (ticks_of)
};

}  // namespace

std::string to_string(const Task& t) {
  const std::string array = t.array > 0 ? fmt::format(" of array {}", t.array) : "";
  if (t.phase == Phase::barrier)
    return fmt::format("barrier of stage {} after tick {}", t.stage, t.microbatch);
  if (t.phase == Phase::update) return fmt::format("update of stage {}{}", t.stage, array);
  return fmt::format("{} of micro-batch {} on stage {}{}", name_of(t.phase), t.microbatch, t.stage, array);
}

int PipelineSchedule::devices() const {
  return stages.empty() ? 0 : 1 + std::ranges::max(stages, {}, &PipelineStage::device).device;
}

int PipelineSchedule::microbatches() const {
  int most = 0;
  for (const Task& t : tasks)
    if (t.phase == Phase::forward) most = std::max(most, t.microbatch);
  return most + 1;
}

int PipelineSchedule::arrays() const { return 1 + most(tasks, &Task::array); }

int PipelineSchedule::compute_lanes() const { return 1 + most(tasks, &Task::lane); }

bool PipelineSchedule::overlaps_batches() const { return most(tasks, &Task::lag) > 0; }

bool PipelineSchedule::updates_together() const {
  std::set<std::pair<int, int>> times;  // lag, tick
  const std::vector<int> ticks = ticks_of(*this);
  for (std::size_t i = 0; i < tasks.size(); ++i)
    if (tasks[i].phase == Phase::update) times.emplace(tasks[i].lag, ticks[i]);
  return times.size() == 1;
}

bool PipelineSchedule::predicts_weights() const {
  return std::ranges::any_of(stages, [](const PipelineStage& stage) {
    return stage.weights.forward_predicts > 0 || stage.weights.backward_predicts > 0;
  });
}

PipelineSchedule for_arrays(const PipelineSchedule& one, int arrays, ArrayOrder order, int lanes) {
  if (one.stages.size() != 1 || one.microbatches() != 1)
    throw Error(fmt::format(
        "several arrays of models train on one device, in one stage and one micro-batch; here there are {} and "
        "{}",
        counted(std::ssize(one.stages), "stage"), counted(one.microbatches(), "micro-batch")));
  const bool is_ring = order == ArrayOrder::ring && arrays > 1;
  if (is_ring && lanes > 1) throw Error("a ring of arrays has one compute lane");
  PipelineSchedule all{one.stages, {}};
  const auto add = [&](Phase phase, int array, int lag) {
    all.tasks.push_back({phase, 0, 0, lag, array % lanes, array});
  };
  for (int a = 0; a < arrays; ++a) {
    if (!is_ring) add(Phase::forward, a, 0);
    add(Phase::backward, a, is_ring ? 1 : 0);
    add(Phase::update, a, is_ring ? 1 : 0);
    if (is_ring) add(Phase::forward, (a + 1) % arrays, a + 1 < arrays ? 1 : 0);
  }
  return all;
}

void check(const PipelineSchedule& schedule) { Check(schedule).run(); }

PipelineSchedule one_by_one(const PipelineSchedule& schedule) {
  PipelineSchedule one;
  for (const PipelineStage& stage : schedule.stages) one.stages.push_back({stage.device});
  const int stages = static_cast<int>(one.stages.size());
  for (int k = 0; k < stages; ++k) one.tasks.push_back({Phase::forward, k});
  for (int k = stages; k-- > 0;) one.tasks.push_back({Phase::backward, k});
  for (int k = 0; k < stages; ++k) one.tasks.push_back({Phase::update, k});
  return one;
}

}  // namespace tandem::engine
