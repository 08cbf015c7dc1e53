#include "schedules.h"

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

#include "program_builder.h"

namespace tandem::testing {
using namespace engine;

Pipeline equal_stages(int count, const Stage& stage, int microbatches) {
  return {.stages = std::vector<Stage>(static_cast<std::size_t>(count), stage), .microbatches = microbatches};
}

namespace {

// The values of one micro-batch on one stage; −1 if the stage has no such neighbor.
struct Flow {
  MemberId input, activation, output;  // of F; B uses the activation
  MemberId grad_output, grad_input;    // of B
  MemberId grad;                       // of the weights, including this micro-batch
};

// The stages' instructions. Schedules differ in the order, the lags, and the weights that they use.
class StageWriter {
 public:
  explicit StageWriter(const Pipeline& p, int backward_lane = 0)
      : p_(p), backward_lane_(backward_lane), b_(p.size()), flow_(at(p.size())) {
    b_.program().corun.assign(static_cast<std::size_t>(p.size()), p.corun);
    b_.program().microbatches = p.microbatches;
    for (int k = 0; k < size(); ++k) {
      weights_.push_back(b_.state(fmt::format("w{}", k), k, stage(k).weights));
      for (int j = 0; j < p.microbatches; ++j) flow_[at(k)].push_back(add_flow(k, j));
    }
  }

  int size() const { return p_.size(); }
  ProgramBuilder& builder() { return b_; }
  MemberId weights(int k, int age) { return b_.read(weights_[at(k)], age); }

  // Reads the input from stage k − 1, saves activations, sends to stage k + 1.
  void forward(int k, int j, int lag, MemberId weights) {
    const Flow& flow = flow_[at(k)][at(j)];
    Instruction f{.name = name("F", k, j),
                  .lane = b_.lane(k),
                  .lag = lag,
                  .reads = {weights},
                  .writes = {flow.activation},
                  .cost = {stage(k).forward},
                  .tag = tag(Phase::forward, k, j)};
    if (flow.input >= 0) f.reads.push_back(flow.input);
    if (flow.output >= 0) f.writes.push_back(flow.output);
    b_.add(std::move(f));
    if (flow.output >= 0)
      b_.transfer(name("y", k, j), flow.output, flow_[at(k + 1)][at(j)].input, lag, p_.hop);
  }

  // Adds to the stage's gradient, in place, and sends the input's gradient to stage k − 1.
  void backward(int k, int j, int lag, MemberId weights) {
    const Flow& flow = flow_[at(k)][at(j)];
    Instruction s{.name = name("B", k, j),
                  .lane = b_.lane(k, LaneKind::compute, backward_lane_),
                  .lag = lag,
                  .reads = {weights, flow.activation},
                  .writes = {flow.grad},
                  .cost = {stage(k).backward},
                  .tag = tag(Phase::backward, k, j),
                  .in_place = true};
    if (j > 0) s.reads.push_back(flow_[at(k)][at(j - 1)].grad);
    if (flow.grad_output >= 0) s.reads.push_back(flow.grad_output);
    if (flow.grad_input >= 0) s.writes.push_back(flow.grad_input);
    b_.add(std::move(s));
    if (flow.grad_input >= 0)
      b_.transfer(name("d", k, j), flow.grad_input, flow_[at(k - 1)][at(j)].grad_output, lag, p_.hop);
  }

  Instruction& update(int k, int lag) {
    return b_.instruction(b_.add({.name = fmt::format("U{}", k),
                                  .lane = b_.lane(k),
                                  .lag = lag,
                                  .reads = {flow_[at(k)].back().grad, weights(k, 1)},
                                  .writes = {b_.assign(weights_[at(k)])},
                                  .cost = {stage(k).update},
                                  .tag = tag(Phase::update, k, 0),
                                  .in_place = true}));
  }

  // All stages wait for each other: no instruction before it runs beside one after it.
  void barrier(const std::string& name) {
    if (!p_.barriers) return;
    const std::int64_t channel = b_.new_channel();
    for (int k = 0; k < size(); ++k)
      b_.add(
          {.name = fmt::format("{} {}", name, k), .lane = b_.lane(k), .channel = channel, .barrier = true});
  }

  Program take() { return b_.take(); }

 private:
  Flow add_flow(int k, int j) {
    const auto boundary = [&](const char* what, int neighbor) {
      return neighbor < 0 || neighbor >= size() ? MemberId() : b_.value(name(what, k, j), k, p_.boundary);
    };
    Flow flow;
    flow.input = boundary("x", k - 1);
    flow.activation = b_.value(name("a", k, j), k, stage(k).activation);
    flow.output = boundary("y", k + 1);
    flow.grad_output = boundary("e", k + 1);
    flow.grad_input = boundary("d", k - 1);
    flow.grad = j > 0 ? b_.over(name("g", k, j), flow_[at(k)][at(j - 1)].grad)
                      : b_.value(name("g", k, j), k, stage(k).weights);
    return flow;
  }

  const Stage& stage(int k) const { return p_.stages[at(k)]; }
  std::string name(const char* what, int k, int j) const {
    return p_.microbatches > 1 ? fmt::format("{}{}/{}", what, k, j) : fmt::format("{}{}", what, k);
  }
  static Tag tag(Phase phase, int k, int j) { return {.phase = phase, .stage = k, .microbatch = j}; }

  const Pipeline p_;
  int backward_lane_;
  ProgramBuilder b_;
  std::vector<BlockId> weights_;
  std::vector<std::vector<Flow>> flow_;  // [stage][micro-batch]
};

struct Turn {
  bool backward;
  int microbatch;
};

// A total order of all stages' turns in which everything follows its dependencies.
Program flush_schedule(const Pipeline& p, const std::vector<std::vector<Turn>>& turns) {
  StageWriter w(p);
  const int stages = p.size();
  std::vector<std::size_t> next(at(stages), 0);
  std::vector<int> forwards(at(stages), 0), backwards(at(stages), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int k = 0; k < stages; ++k) {
      if (next[at(k)] == turns[at(k)].size()) continue;
      const Turn t = turns[at(k)][next[at(k)]];
      const bool ready = t.backward ? k + 1 == stages || backwards[at(k + 1)] > t.microbatch
                                    : k == 0 || forwards[at(k - 1)] > t.microbatch;
      if (!ready) continue;
      if (t.backward)
        w.backward(k, t.microbatch, 0, w.weights(k, 1));
      else
        w.forward(k, t.microbatch, 0, w.weights(k, 1));
      ++(t.backward ? backwards : forwards)[at(k)];
      ++next[at(k)];
      moved = true;
    }
  }
  for (int k = 0; k < stages; ++k) w.update(k, 0);
  return w.take();
}

}  // namespace

Program accumulation(const Pipeline& p) {
  std::vector<Turn> turns;
  for (int j = 0; j < p.microbatches; ++j) turns.insert(turns.end(), {{false, j}, {true, j}});
  return flush_schedule(p, std::vector(at(p.size()), turns));
}

Program gpipe(const Pipeline& p) {
  std::vector<Turn> turns;
  for (bool backward : {false, true})
    for (int j = 0; j < p.microbatches; ++j) turns.push_back({backward, j});
  return flush_schedule(p, std::vector(at(p.size()), turns));
}

Program one_f_one_b(const Pipeline& p) {
  std::vector<std::vector<Turn>> turns(at(p.size()));
  for (int k = 0; k < p.size(); ++k) {
    const int ahead = std::min(p.size() - 1 - k, p.microbatches);
    for (int j = 0; j < ahead; ++j) turns[at(k)].push_back({false, j});
    for (int j = 0; j < p.microbatches; ++j) {
      if (ahead + j < p.microbatches) turns[at(k)].push_back({false, ahead + j});
      turns[at(k)].push_back({true, j});
    }
  }
  return flush_schedule(p, turns);
}

namespace {

// The ages of the weights that F and B of a stage read.
struct Ages {
  int forward, backward;
};
template <class AgesOf> Program dual_issue(const Pipeline& p, AgesOf ages) {
  StageWriter w(p, 1);
  const int n = p.size();
  for (int k = 0; k < n; ++k) w.forward(k, 0, k, w.weights(k, ages(k).forward));
  for (int k = n; k-- > 0;) w.backward(k, 0, 2 * n - 2 - k, w.weights(k, ages(k).backward));
  for (int k = 0; k < n; ++k) w.update(k, 2 * n - 2 - k);
  w.barrier("barrier");
  return w.take();
}

}  // namespace

Program dualpipe(const Pipeline& p) {
  return dual_issue(p, [n = p.size()](int k) { return Ages{2 * n - 1 - 2 * k, 1}; });
}

Program vertical_sync(const Pipeline& p) {
  return dual_issue(p, [n = p.size()](int k) { return Ages{2 * n - 1 - k, 2 * n - 1 - k}; });
}

Program spectrain(const Pipeline& p) {
  StageWriter w(p, 1);
  ProgramBuilder& b = w.builder();
  const int n = p.size();
  std::vector<BlockId> velocity;
  for (int k = 0; k < n; ++k) velocity.push_back(b.state(fmt::format("v{}", k), k, p.stages[at(k)].weights));
  const auto predict = [&](int k, const char* name, Phase phase, int lane, int lag, int age) {
    const MemberId scratch =
        b.value(fmt::format("{}{}", phase == Phase::forward ? "wf" : "wb", k), k, p.stages[at(k)].weights);
    b.add({.name = fmt::format("{}{}", name, k),
           .lane = b.lane(k, LaneKind::compute, lane),
           .lag = lag,
           .reads = {w.weights(k, age), b.read(velocity[at(k)], age)},
           .writes = {scratch},
           .tag = {.phase = phase, .stage = k}});
    return scratch;
  };
  for (int k = 0; k < n; ++k) w.forward(k, 0, k, predict(k, "PF", Phase::forward, 0, k, 2 * n - 1 - 2 * k));
  for (int k = n; k-- > 0;) {
    const int lag = 2 * n - 2 - k;
    w.backward(k, 0, lag, predict(k, "PB", Phase::backward, 1, lag, 1));
  }
  for (int k = 0; k < n; ++k) {
    Instruction& update = w.update(k, 2 * n - 2 - k);
    update.reads.push_back(b.read(velocity[at(k)], 1));
    update.writes.push_back(b.assign(velocity[at(k)]));
  }
  w.barrier("barrier");
  return w.take();
}

namespace {

// One F and one B of each stage in two ticks. Counted in micro-batches, stage k's F is ⌊k/2⌋ behind stage
// 0's, and its B ⌊(2N−1−k)/2⌋. Even stages run F in the first tick, odd ones B. `age` is the age of the
// weights.
template <class AgeOf> Program alternating(const Pipeline& p, AgeOf age) {
  StageWriter w(p);
  const int n = p.size(), m = p.microbatches;
  for (int pair = 0; pair < m; ++pair)
    for (int tick = 0; tick < 2; ++tick) {
      for (int k = 0; k < n; ++k) {
        const bool is_forward = (k + tick) % 2 == 0;
        const int number = pair - (is_forward ? k / 2 : (2 * n - 1 - k) / 2);
        const int lag = number < 0 ? (-number + m - 1) / m : 0;
        const int j = number + lag * m;
        if (is_forward) {
          w.forward(k, j, lag, w.weights(k, age(k)));
        } else {
          w.backward(k, j, lag, w.weights(k, age(k)));
          if (j == m - 1) w.update(k, lag);
        }
      }
      w.barrier(fmt::format("barrier {}", 2 * pair + tick));
    }
  return w.take();
}

}  // namespace

Program pipedream(const Pipeline& p) {
  return alternating(p, [n = p.size()](int k) { return n - k; });
}

Program double_buffered(const Pipeline& p) {
  if (p.microbatches < p.size())
    throw Error(
        fmt::format("2BW on {} stages needs as many micro-batches, not {}", p.size(), p.microbatches));
  return alternating(p, [](int) { return 2; });
}

}  // namespace tandem::testing
