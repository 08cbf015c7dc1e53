#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/session.h>
#include <tandem/nn/module.h>
#include <tandem/plan/optimizer.h>
#include <tandem/plan/strategy.h>
#include <tandem/train/batch_loss.h>
#include <tandem/train/model_array.h>

namespace tandem {

class StateLink;

struct TrainStepOptions {
  Strategy strategy{};
  /// Per model, for what it draws (dropout, noise). If empty, they are made from the paths of what the step
  /// trains, so that steps which train different parts draw different numbers; without modules they are 0, 1,
  /// …
  std::vector<std::uint64_t> seeds{};
  int most_programs = 8;  ///< kept at most; each combination of input types has one
  /// Called when a Program is made, and for the first one with each reason for dense updates of tables.
  std::function<void(const std::string&)> log{};
  /// Called once, when a batch needs another Program although most_programs are kept; by default it prints to
  /// standard error.
  std::function<void(const std::string&)> warn = print_warning;
  engine::SessionOptions session{};  ///< its kernels are ignored: the strategy's are used
};

/// A training step as a function of a batch. It is traced, planned and proved once for each combination of
/// input types, and replayed from then on. Ranks and stages are threads of this process. The first trace
/// fixes these for the lifetime of the TrainStep: which parameters are frozen, which modules are in
/// evaluation, and the values of Tensors that the function holds in addition to the model's.
///
///     TrainStep step(net, AdamOptions{}, [&](const Tensors& b) { return cross_entropy(net(b[0]), b[1]); });
///     const double loss = step({images, labels}, /*lr=*/0.001);
///     const Tensor output = net(images);  // with the weights so far
class TrainStep {
 public:
  /// Returns the mean loss over the given samples, a scalar.
  using Loss = BatchLoss;

  /// Trains the parameters of `model` and of its children. The loss can use other modules too; their
  /// parameters stay as they are. After each step the modules have the new weights and buffers, and what is
  /// assigned to them between steps is used by the next step. `optimizer` takes the place of the strategy's.
  TrainStep(nn::ModuleBase& model, Optimizer optimizer, Loss loss, TrainStepOptions options = {});
  /// Trains several models of one structure side by side. The loss uses the first, and stands for all.
  TrainStep(const std::vector<nn::ModuleBase*>& models, Optimizer optimizer, Loss loss,
            TrainStepOptions options = {});
  /// The same for models that differ in what ArrayModel says: optimizer, clipping, seed, dropout. `loss` is
  /// called with each. The models' objectives, data and rates are not used: give rates to `run`.
  using ModelLoss = std::function<Tensor(nn::Module& model, const Tensors& batch)>;
  TrainStep(const ModelArray& models, const ModelLoss& loss, TrainStepOptions options = {});
  /// Training starts from `state`, as Module::state returns it (with a leading model axis if the strategy has
  /// several models), and no module has the new weights: `state` returns them. Entries that the loss does not
  /// use are carried along.
  TrainStep(Loss loss, StateDict state, TrainStepOptions options = {});
  ~TrainStep();

  /// Trains on one batch, and returns the loss. The leading axis of a tensor is the samples; a scalar goes to
  /// all samples. Throws Error if there are several models, if the schedule has several batches in flight
  /// (see `run` for both), or if ranks × micro-batches do not divide the samples, and what Session::run
  /// throws. If that was after an update had begun, the state is lost, and `load` must set another; before
  /// it, the state is as it was.
  double operator()(const Tensors& batch, double lr);
  double operator()(const Tensor& batch, double lr) { return (*this)(Tensors{batch}, lr); }
  /// Trains on several batches, from an empty to a drained pipeline, so that schedules can have several
  /// batches in flight. Returns the losses per batch and model. `rates` has one rate per model for all
  /// batches, or one per batch and model: first those of the first batch. Where a prediction of weights needs
  /// rates of later batches, it takes those of the last one.
  std::vector<std::vector<double>> run(const std::vector<Tensors>& batches, const std::vector<double>& rates);

  using Results = std::map<std::string, Tensor>;
  /// Returns the results of the last run, by batch: the loss, and what else the loss function delivers by
  /// name, as in `deliver("correct", correct_count(output, labels))`; also kUpdatedResult
  /// (gradient_rules.h) if rules can skip updates. Replicas and micro-batches each have a part of the
  /// samples: a result is the mean over them, and the sum if it is an integer, element by element. So a
  /// result must not have a row per sample. With several models, results have a leading axis.
  const std::vector<Results>& results() const { return results_; }
  /// Returns one result of a batch of the last run. Throws Error if there is none of this name.
  Tensor result(const std::string& name, std::size_t batch = 0) const;

  /// Returns the current parameters, buffers and optimizer state. Throws Error if they are lost.
  StateDict state() const;
  /// Returns the number of batches trained so far, which is also the number of the next one.
  std::int64_t batches() const { return batches_; }
  /// Continues from `state`, as `state()` returns it, with `batches` as the next batch. It holds the states
  /// of other modules that the loss uses, which get these values too. Throws Error, and changes nothing, if
  /// the state does not fit; before the first batch, only the models are checked.
  void load(StateDict state, std::int64_t batches);
  /// Returns the number of Programs made so far.
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
  StateDict without_linked(StateDict state) const;
  StateDict state_of(const engine::Graph& first);
  const Known& keep(const std::string& types, Known known);
  void link_models(const std::vector<nn::ModuleBase*>& models);
  engine::Graph trace(const Tensors& batch);
  engine::Graph trace(const Tensors& batch, const Loss& loss, bool links_others);
  void link_others(engine::Graph& graph, const StateDict& used);
  void require_same_uses(const StateUses& uses) const;
  void require_state() const;
  std::vector<Loss> losses_;  // one that stands for all models, or one per model
  TrainStepOptions options_;
  std::shared_ptr<StateLink> link_;  // to the models, if there are any
  std::set<std::string> own_;        // the paths of the models' states
  StateDict state_;                  // until there is a session, of what is not linked
  std::unique_ptr<Feed> feed_;
  std::unique_ptr<engine::Session> session_;
  std::vector<Results> results_;
  std::map<std::string, Known> programs_;  // by input types
  std::int64_t batches_ = 0;
  StateUses uses_;     // by the Programs made so far
  bool lost_ = false;  // a run failed, and the state is lost
  int traces_ = 0;
};

}  // namespace tandem
