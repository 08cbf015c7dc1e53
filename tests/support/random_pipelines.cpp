#include "random_pipelines.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

class RandomPipeline {
 public:
  RandomPipeline(std::mt19937_64& rng, int stages, int microbatches)
      : rng_(rng), n_(stages), m_(microbatches), devices_(draw_int(rng, 1, stages)) {}

  PipelineSchedule make() {
    for (int k = 0; k < n_; ++k) s_.stages.push_back({k % devices_});
    draw_lags();
    list();
    draw_weights();
    draw_barriers();
    return s_;
  }

 private:
  using Key = std::tuple<Phase, int, int>;  // of a task: its stage and micro-batch

  // What a task needs to be done before.
  std::vector<Key> needs(const Key& task) const {
    const auto& [phase, k, i] = task;
    std::vector<Key> all;
    if (phase == Phase::update) all.emplace_back(Phase::backward, k, m_ - 1);
    if (phase == Phase::backward) all.emplace_back(Phase::forward, k, i);
    if (phase == Phase::backward && k + 1 < n_) all.emplace_back(phase, k + 1, i);
    if (phase == Phase::forward && k > 0) all.emplace_back(phase, k - 1, i);
    if (phase != Phase::update && i > 0) all.emplace_back(phase, k, i - 1);
    return all;
  }

  void draw_lags() {
    const bool overlaps = draw_bool(rng_, 0.8);
    const auto draw = [&](const Key& task) {
      int lag = 0;
      for (const Key& other : needs(task)) lag = std::max(lag, lags_.at(other));
      lags_[task] = lag + (overlaps && draw_bool(rng_, 0.3) ? 1 : 0);
    };
    for (int k = 0; k < n_; ++k)
      for (int i = 0; i < m_; ++i) draw({Phase::forward, k, i});
    for (int k = n_; k-- > 0;)
      for (int i = 0; i < m_; ++i) draw({Phase::backward, k, i});
    for (int k = 0; k < n_; ++k) draw({Phase::update, k, 0});
  }

  // In a random order that respects needs of equal lag.
  void list() {
    const bool two_lanes = draw_bool(rng_, 0.5);
    std::vector<Key> left;
    for (const auto& [task, lag] : lags_) left.push_back(task);
    while (!left.empty()) {
      std::vector<Key> ready;
      std::ranges::copy_if(left, std::back_inserter(ready), [&](const Key& task) {
        return std::ranges::none_of(needs(task), [&](const Key& other) {
          return lags_.at(other) == lags_.at(task) && std::ranges::count(left, other) > 0;
        });
      });
      const Key task = ready[static_cast<std::size_t>(draw_int(rng_, 0, static_cast<int>(ready.size()) - 1))];
      std::erase(left, task);
      const auto& [phase, k, i] = task;
      s_.tasks.push_back({phase, k, i, lags_.at(task), two_lanes && phase != Phase::forward ? 1 : 0});
    }
  }

  // The least age of the weights that all of the stage's tasks in this phase can read.
  int youngest(int stage, Phase phase) const {
    const auto of_stage = [&](Phase wanted) {
      return [=](const Task& t) { return t.stage == stage && t.phase == wanted; };
    };
    const auto update = std::ranges::find_if(s_.tasks, of_stage(Phase::update));
    int age = 1;
    for (auto t = s_.tasks.begin(); t != s_.tasks.end(); ++t)
      if (of_stage(phase)(*t)) age = std::max(age, update->lag - t->lag + (t < update ? 1 : 0));
    return age;
  }

  void draw_weights() {
    for (int k = 0; k < n_; ++k) {
      WeightRule& weights = s_.stages[static_cast<std::size_t>(k)].weights;
      const auto older = [&] { return draw_bool(rng_, 0.4) ? draw_int(rng_, 1, 2) : 0; };
      const auto ahead = [&] { return draw_bool(rng_, 0.4) ? draw_int(rng_, 1, 3) : 0; };
      weights.forward_age = youngest(k, Phase::forward) + older();
      weights.forward_predicts = ahead();
      if (draw_bool(rng_, 0.5)) continue;
      weights.backward_age = youngest(k, Phase::backward) + older();
      weights.backward_predicts = ahead();
    }
  }

  // All devices meet at the same places of the list, each by its first stage.
  void draw_barriers() {
    const int barriers = draw_bool(rng_, 0.5) ? draw_int(rng_, 1, 2) : 0;
    std::vector<int> places;
    for (int b = 0; b < barriers; ++b) places.push_back(draw_int(rng_, 0, static_cast<int>(s_.tasks.size())));
    std::ranges::sort(places);
    for (int b = barriers; b-- > 0;)
      for (int d = 0; d < devices_; ++d)
        s_.tasks.insert(s_.tasks.begin() + places[static_cast<std::size_t>(b)], {Phase::barrier, d, b});
  }

  std::mt19937_64& rng_;
  int n_, m_, devices_;
  PipelineSchedule s_;
  std::map<Key, int> lags_;
};

}  // namespace

PipelineSchedule random_pipeline(std::mt19937_64& rng, int stages, int microbatches) {
  return RandomPipeline(rng, stages, microbatches).make();
}

}  // namespace tandem::testing
