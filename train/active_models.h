#pragma once
#include <mutex>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/plan/strategy.h>

namespace tandem {

/// Which of a Trainer's models still train, and which of them its Session holds. A model that stops is masked
/// at once. It leaves when the Trainer makes another Session. Models are numbered from 0.
class ActiveModels {
 public:
  explicit ActiveModels(int models);

  /// The models in the Session, ascending.
  const std::vector<int>& in_session() const { return in_session_; }
  int count() const { return static_cast<int>(in_session_.size()); }
  bool are_all_in_session() const { return in_session_.size() == active_.size(); }
  /// Returns for each model in the Session whether it still trains. Safe on any thread, as `stop` is.
  std::vector<char> active() const;
  /// Returns the models that still train, ascending.
  std::vector<int> training() const;
  /// Returns false if the model had stopped already.
  bool stop(int model);
  /// Leaves the stopped models out of the Session, unless all have stopped. Returns whether there was one.
  bool leave_out();

  /// Returns one value per model: those of the models in the Session, and `missing` for the others.
  std::vector<double> of_all(const std::vector<double>& in_session, double missing) const;
  /// Returns the elements of the models in the Session.
  template <class T> std::vector<T> in_session(const std::vector<T>& all) const {
    std::vector<T> some;
    for (const int m : in_session_) some.push_back(all.at(static_cast<std::size_t>(m)));
    return some;
  }
  /// Returns the strategy of all models for those in the Session. An array without models is left out.
  Strategy in_session(const Strategy& of_all) const;

 private:
  mutable std::mutex mutex_;
  std::vector<char> active_;  // of all models
  std::vector<int> in_session_;
};

}  // namespace tandem
