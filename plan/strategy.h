#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/schedule/program.h>
#include <tandem/dist/all_reduce_costs.h>
#include <tandem/dist/fusion_group.h>
#include <tandem/dist/link.h>
#include <tandem/memory/memory_plan.h>
#include <tandem/ops/copy_link.h>
#include <tandem/ops/kernels.h>
#include <tandem/pipeline/schedules.h>
#include <tandem/plan/gradient_rules.h>
#include <tandem/plan/optimizer.h>

namespace tandem::engine {
class Profile;
}

namespace tandem {

/// What a device does at most, per second; and what each kernel takes beside its operations and bytes.
struct DeviceSpeed {
  double flops = 50e9, bytes = 10e9;
  double seconds_per_kernel = 0;
};

/// A memory plan, and the checksum of the problem that it is for (memory/memory_problem.h).
struct KnownMemoryPlan {
  engine::MemoryPlan plan;
  std::string problem;
};

/// The decisions that turn a forward graph into a Program. Each field is one decision, carried out by one
/// pass; the defaults are plain training on one device.
struct Strategy {
  int models = 1;  ///< trained side by side, with a leading axis in every array
  /// The models in arrays of these sizes, each of which is batched, differentiated and updated by itself;
  /// empty: one array of all.
  std::vector<int> arrays{};
  engine::ArrayOrder array_order = engine::ArrayOrder::ring;
  int array_lanes = 1;   ///< compute lanes of arrays in turn
  int replicas = 1;      ///< data-parallel copies; the graph is traced for one replica's micro-batch
  int microbatches = 1;  ///< per batch, accumulated in order
  int stages = 1;        ///< pipeline stages per replica
  int chunks = 1;        ///< stages of each device (PipelineShape)
  std::string schedule = "plain";                             ///< a name in pipeline_schedules()
  SpecTrainTarget spectrain_target = SpecTrainTarget::paper;  ///< which weights `spectrain` predicts
  bool lockstep = false;                                      ///< devices meet at a barrier after every tick
  std::optional<engine::PipelineSchedule> own_schedule{};     ///< instead of one of these: with_schedule

  /// First module of each stage but the first ("block1"); empty: those of balanced_cuts.
  std::vector<std::string> cuts{};
  /// Gradients in no group are reduced one by one.
  std::vector<FusionGroup> fusion_groups{};
  /// Activations to swap to the host between forward and backward, or to compute again, by node:
  /// "block0 relu" is the output of the relu in module block0; "block0" is every activation in the module.
  /// The memory plan "lists" plans them; without one, they work with all schedules.
  std::vector<std::string> swap{}, recompute{};
  bool recompute_cheap = true;     ///< recompute cheap expressions of kept activations, before all others
  std::int64_t memory_budget = 0;  ///< bytes per device; 0: no limit
  /// A name in memory_policies(), which plans the memory; empty: mu-two+ plans if the budget is exceeded.
  std::string memory_plan{};
  engine::CopyLink copy_link{};  ///< to the host, for swaps; without one, plans only recompute
  /// Bytes of the host for swapped activations, per device; 0: no limit. If a plan needs more, it swaps none.
  std::int64_t host_budget = 0;
  /// Instead of a policy: the plans of an earlier run of this step, by device (plan/plan_file.h).
  std::vector<KnownMemoryPlan> known_memory_plans{};

  std::optional<DType> amp{};  ///< bf16: products and activations use it; weights and sums stay f32
  bool pool_first = true;      ///< max pooling comes before a relu rather than after it
  bool fuse_epilogues = true;  ///< the expression after a product is computed piece by piece with it
  bool fuse_pointwise = true;  ///< chains of pointwise ops become one pass over memory
  bool sparse_updates =
      true;  ///< of tables whose rows are looked up, where their bits are those of dense ones
  GradientRules gradients{};
  Optimizer optimizer = SgdOptions{};
  std::vector<ParameterGroup> parameter_groups{};
  /// What each model has of its own, instead of `optimizer` and the clipping of `gradients`; empty: nothing.
  std::vector<ModelOptions> each{};
  /// The host says in each batch which models are updated (kActiveInput): a model that has diverged, or is
  /// given up, stays as it is.
  bool masks_models = false;
  /// For each s in it, each batch tells how far the weights are from what was predicted s updates before, and
  /// from what they were then (plan/measure_prediction.h).
  std::vector<int> measure_prediction{};
  bool train = true;  ///< false: forward and results only

  // The machine that the plan is for.
  int threads = 1;                                                  ///< per compute lane
  LinkModel link{};                                                 ///< between ranks, for predictions
  CollectiveAlgorithm collective = CollectiveAlgorithm::automatic;  ///< of the ranks' Comms, for predictions
  /// For predictions: what all-reduces over the link cost by their threads, and how much they slow
  /// computation down (LIBRA's Eqs. 3 to 6). Without it they take the time of the link, and slow nothing
  /// down.
  std::optional<Contention> contention{};
  /// What instructions take, for memory plans. Without it: what their operations and bytes take at `speed`,
  /// of each thread.
  std::shared_ptr<const engine::Profile> profile{};
  DeviceSpeed speed{};
  const engine::KernelTable* kernels = &engine::cpu_kernels();  ///< null: for the simulator alone
  bool verify = true;  ///< verifies the graph after each pass, and the Program

  int device_of(int stage) const {
    return own_schedule ? own_schedule->stages.at(static_cast<std::size_t>(stage)).device : stage % devices();
  }
  int devices() const { return own_schedule ? own_schedule->devices() : stages / chunks; }
  int ranks() const { return replicas * devices(); }
};

}  // namespace tandem

namespace tandem::engine {

/// Returns the strategy with a schedule of your own, and with as many stages and micro-batches as that has.
Strategy with_schedule(Strategy strategy, PipelineSchedule schedule);

/// Throws Error if a number is out of range.
void check(const Strategy& strategy);

/// Returns the strategy's schedule. Throws Error if it is impossible, or not for so many stages and
/// micro-batches.
PipelineSchedule schedule_of(const Strategy& strategy);

/// Returns the strategy of forward alone, with the same ranks and with state on the same stages, so that its
/// Program can share a Session with the training Program. Throws Error if there are stages but no `cuts`.
Strategy for_evaluation(Strategy strategy);

/// Returns the strategy of the same training on one device, as one stage and without a limit of memory.
Strategy on_one_device(Strategy strategy);

}  // namespace tandem::engine
