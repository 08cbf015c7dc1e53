#include <tandem/train/active_models.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tandem {

ActiveModels::ActiveModels(int models, const std::vector<int>& turns)
    : active_(static_cast<std::size_t>(models), 1) {
  int first = 0;
  for (const int count : turns.empty() ? std::vector{models} : turns) {
    auto& turn = turns_.emplace_back(static_cast<std::size_t>(count));
    std::iota(turn.begin(), turn.end(), first);
    first += count;
  }
  in_session_ = turns_[0];
}

std::vector<char> ActiveModels::active() const {
  const std::lock_guard lock(mutex_);
  return in_session(active_);
}

std::vector<int> ActiveModels::training() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> all(active_.size());
  std::iota(all.begin(), all.end(), 0);
  return training_of(all);
}

std::vector<int> ActiveModels::training_in_session() const {
  const std::lock_guard lock(mutex_);
  return training_of(in_session_);
}

std::vector<int> ActiveModels::training(int turn) const {
  const std::lock_guard lock(mutex_);
  return training_of(turns_.at(static_cast<std::size_t>(turn)));
}

bool ActiveModels::stop(int model) {
  const std::lock_guard lock(mutex_);
  return std::exchange(active_.at(static_cast<std::size_t>(model)), char{0}) != 0;
}

void ActiveModels::restart(const std::vector<StoppedModel>& stopped) {
  const std::lock_guard lock(mutex_);
  std::ranges::fill(active_, 1);
  for (const StoppedModel& s : stopped) active_.at(static_cast<std::size_t>(s.model)) = 0;
}

bool ActiveModels::enter(int turn) {
  const std::lock_guard lock(mutex_);
  const std::vector<int> models = training_of(turns_.at(static_cast<std::size_t>(turn)));
  if (models.empty() || models == in_session_) return false;
  in_session_ = models;
  return true;
}

std::vector<int> ActiveModels::training_of(std::vector<int> models) const {
  std::erase_if(models, [&](int m) { return active_[static_cast<std::size_t>(m)] == 0; });
  return models;
}

std::vector<double> ActiveModels::of_all(const std::vector<double>& some, double missing) const {
  if (some.size() != in_session_.size()) return some;  // nothing: there is no test set
  std::vector<double> all(active_.size(), missing);
  for (std::size_t i = 0; i < some.size(); ++i) all[static_cast<std::size_t>(in_session_[i])] = some[i];
  return all;
}

Strategy ActiveModels::in_session(const Strategy& of_all) const {
  Strategy s = of_all;
  s.models = count();
  if (!of_all.each.empty()) {
    s.each = in_session(of_all.each);
    s.optimizer = s.each[0].optimizer;
  }
  s.arrays.clear();
  int first = 0;
  for (const int models : of_all.arrays) {
    const auto here =
        std::ranges::count_if(in_session_, [&](int m) { return m >= first && m < first + models; });
    if (here > 0) s.arrays.push_back(static_cast<int>(here));
    first += models;
  }
  if (s.arrays.size() == 1) s.arrays.clear();
  if (s.arrays.empty()) s.array_lanes = 1;
  return s;
}

}  // namespace tandem
