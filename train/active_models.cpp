#include <tandem/train/active_models.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tandem {

ActiveModels::ActiveModels(int models)
    : active_(static_cast<std::size_t>(models), 1), in_session_(static_cast<std::size_t>(models)) {
  std::iota(in_session_.begin(), in_session_.end(), 0);
}

std::vector<char> ActiveModels::active() const {
  const std::lock_guard lock(mutex_);
  return in_session(active_);
}

std::vector<int> ActiveModels::training() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> models;
  for (std::size_t m = 0; m < active_.size(); ++m)
    if (active_[m]) models.push_back(static_cast<int>(m));
  return models;
}

bool ActiveModels::stop(int model) {
  const std::lock_guard lock(mutex_);
  return std::exchange(active_.at(static_cast<std::size_t>(model)), char{0}) != 0;
}

bool ActiveModels::leave_out() {
  const std::lock_guard lock(mutex_);
  std::vector<int> left = in_session_;
  std::erase_if(left, [&](int m) { return active_[static_cast<std::size_t>(m)] == 0; });
  if (left.empty() || left.size() == in_session_.size()) return false;
  in_session_ = std::move(left);
  return true;
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
  if (!of_all.each.empty()) s.each = in_session(of_all.each);
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
