#pragma once
#include <algorithm>
#include <mutex>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/plan/strategy.h>
#include <tandem/train/train_progress.h>

namespace tandem {

/// Which of a Trainer's models still train, and which of them its Session holds: those of one turn. A model
/// that stops is masked at once. It leaves when the Trainer makes another Session. Models are numbered from
/// 0.
class ActiveModels {
 public:
  /// `turns`: how many models each turn has, in order of models; empty: one turn has all of them.
  ActiveModels(int models, const std::vector<int>& turns);

  int turns() const { return static_cast<int>(turns_.size()); }

  /// The models in the Session, ascending.
  const std::vector<int>& in_session() const { return in_session_; }
  int count() const { return static_cast<int>(in_session_.size()); }
  bool are_all_in_session() const { return in_session_.size() == active_.size(); }
  /// Returns whether no model of the turn in the Session has left.
  bool are_whole_turn() const { return std::ranges::find(turns_, in_session_) != turns_.end(); }
  /// Returns for each model in the Session whether it still trains. Safe on any thread, as `stop` is.
  std::vector<char> active() const;
  /// Returns the models that still train, ascending.
  std::vector<int> training() const;
  /// Returns those of them that are in the Session.
  std::vector<int> training_in_session() const;
  /// Returns those of a turn that still train.
  std::vector<int> training(int turn) const;
  /// Returns false if the model had stopped already.
  bool stop(int model);
  /// All models train, except those that have stopped.
  void restart(const std::vector<StoppedModel>& stopped);
  /// Puts the models of a turn that still train into the Session, in place of the others. If none of them
  /// does, nothing changes. Returns whether the Session has other models now.
  bool enter(int turn);

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
  std::vector<int> training_of(std::vector<int> models) const;  // with mutex_

  mutable std::mutex mutex_;
  std::vector<std::vector<int>> turns_;  // the models of each
  std::vector<char> active_;             // of all models
  std::vector<int> in_session_;
};

}  // namespace tandem
