#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/session.h>
#include <tandem/plan/strategy.h>

namespace tandem {

struct TrainStepOptions {
  Strategy strategy{};
  std::vector<std::uint64_t> seeds = {0};         ///< per model, of what the models draw (dropout)
  int most_programs = 8;                          ///< kept; one for each combination of input types
  std::function<void(const std::string&)> log{};  ///< told when a Program is made
  engine::SessionOptions session{};               ///< all but its kernels, which are the strategy's
};

/// A training step as a function of a batch. What it computes is traced once for each combination of input
/// types, planned and proved, and replayed from then on; ranks and stages are threads of this process. What
/// the first trace found, it stays: which parameters are frozen, which modules are in evaluation, and what is
/// in Tensors that the function holds beside the model's.
///
///     TrainStep step([&](const Tensors& b) { return cross_entropy(net(b[0]), b[1]); }, net.state());
///     const double loss = step({images, labels}, /*lr=*/0.1);
///     net.load(step.state());
class TrainStep {
 public:
  /// The mean loss over the samples that it is given: a scalar.
  using Loss = std::function<Tensor(const Tensors& batch)>;

  /// `state` is what training starts from, as Module::state gives it (with a leading model axis where the
  /// strategy has several models); what of it the loss does not use is carried along.
  TrainStep(Loss loss, StateDict state, TrainStepOptions options = {});
  ~TrainStep();

  /// Trains on one batch, whose tensors have the samples as their leading axis; scalars are given to all
  /// samples. Returns the loss. Throws Error of several models (see `run`), where ranks × micro-batches do
  /// not divide the samples, and what Session::run throws; the state is lost then, and `load` must give
  /// another.
  double operator()(const Tensors& batch, double lr);
  /// Several batches from empty to drained, so that schedules with several batches in flight have them.
  /// Losses per batch and model; `rates` per model.
  std::vector<std::vector<double>> run(const std::vector<Tensors>& batches, const std::vector<double>& rates);

  using Results = std::map<std::string, Tensor>;
  /// By batch of the last run: the loss, and what else the loss function delivers by name, as in
  /// `Trace::current()->result("correct", correct_count(output, labels))`; with rules that skip updates also
  /// kUpdated (gradient_rules.h). Means over the samples, integers
  /// as sums; with a leading axis where there are several models.
  const std::vector<Results>& results() const { return results_; }

  /// Parameters, buffers and the optimizer's state as they are now. Throws Error where they are lost.
  StateDict state() const;
  /// Batches trained on so far, which also numbers the next.
  std::int64_t batches() const { return batches_; }
  /// Goes on from other state, at another batch. Throws Error where the state does not fit the Programs that
  /// were made, and changes nothing then.
  void load(StateDict state, std::int64_t batches);
  /// Programs made so far.
  int traces() const { return traces_; }

 private:
  class Feed;
  using ResultTypes = std::map<std::string, TensorType>;
  using StateUses = std::map<std::string, std::pair<bool, bool>>;  // by path: trained, assigned
  struct Known {
    engine::ProgramHandle program;
    std::int64_t used;
    ResultTypes results;
  };
  const Known& program_for(const Tensors& batch);
  void require_same_uses(const StateUses& uses) const;
  void require_state() const;
  Loss loss_;
  TrainStepOptions options_;
  StateDict state_;  // until there is a session
  std::unique_ptr<Feed> feed_;
  std::unique_ptr<engine::Session> session_;
  std::vector<Results> results_;
  std::map<std::string, Known> programs_;  // by input types
  std::int64_t batches_ = 0;
  StateUses uses_;     // by the Programs there are
  bool lost_ = false;  // the state, when a run failed
  int traces_ = 0;
};

}  // namespace tandem
