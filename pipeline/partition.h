#pragma once
#include <set>
#include <string>
#include <vector>

#include <tandem/dist/link.h>
#include <tandem/pipeline/pipeline_schedule.h>

namespace tandem::engine {

/// A part of a network that no cut divides. All numbers are of a whole batch.
struct PipelineLayer {
  std::string name;
  double forward = 0, backward = 0;              ///< seconds; the update is part of backward
  double forward_bytes = 0, backward_bytes = 0;  ///< cross a cut behind the layer, in each direction
  double resident_bytes =
      0;  ///< activations, kept from forward to backward; not those that earlier layers keep
  double weight_bytes = 0;
  double gradient_bytes = 0;  ///< of the weights that are trained; a tied one counts where it is read first
  /// Activations that earlier layers keep and that this or later ones need too: a stage that begins here has
  /// its own copy.
  double shared_bytes = 0;
};

/// Adds activations that some layers keep.
void keep(std::vector<PipelineLayer>& layers, const std::set<int>& keepers, double bytes);

/// A chain of layers, to be cut into the stages of a schedule.
struct PartitionProblem {
  std::vector<PipelineLayer> layers;
  PipelineSchedule schedule;
  LinkModel link{};             ///< between devices
  double corun = 1;             ///< ρ, from 0.5 to 1: F beside B take max(F, B, ρ(F + B))
  int spare_devices = 0;        ///< more than the schedule's, for replicas of stages
  double memory_budget = 0;     ///< bytes per device; 0: no limit
  double optimizer_copies = 1;  ///< bytes of the optimizer's state, per byte of weights
};

struct PartitionedStage {
  int first = 0, end = 0;  ///< its layers; `end` is one past the last
  int device = 0;
  int replicas = 1;
  double forward = 0, backward = 0;  ///< seconds, on one replica that takes all samples
  double unit = 0;  ///< the seconds that a unit takes at least, because of this stage or the link into it
  double forward_bytes = 0, backward_bytes = 0;  ///< cross the cut behind it
  double resident_bytes = 0, weight_bytes = 0;   ///< of one batch, one version
  double memory_bytes = 0;                       ///< of its device (of each replica), for this stage
  int held = 0;                                  ///< micro-batches whose activations all replicas keep
  int versions = 0;                              ///< of its weights
};

struct Partition {
  std::vector<PartitionedStage> stages;
  double period = 0;  ///< seconds from one update to the next

  /// The first layer of each stage but the first.
  std::vector<int> cuts() const;
};

/// Returns the partition with the shortest period, by dynamic programming over stages and layers. The period
/// is computed as docs/pipelines.md ("How it cuts") says. Of equally short ones, prefers those in which no
/// stage and no link makes a unit longer than the best cuts for that need; of these, the one whose first
/// stage ends first, then with the fewest replicas of it, then whose second stage ends first, and so on: the
/// one with the smallest list of cuts. Throws Error if there are fewer layers than stages, if a number is
/// negative or not finite, or if no partition fits the budget, with the smallest budget that works.
Partition best_partition(const PartitionProblem& problem);

/// Returns the names of layers, as those of a partition's cuts.
std::vector<std::string> names_of(const PartitionProblem& problem, const std::vector<int>& layers);

/// Returns the smallest memory budget, in bytes per device, with which there is a partition.
double least_memory_budget(const PartitionProblem& problem);

/// Returns the partition with these cuts, whatever memory it takes. `replicas`: of each stage; empty: one.
/// Throws Error if they do not fit the problem.
Partition partition_at(const PartitionProblem& problem, const std::vector<int>& cuts,
                       const std::vector<int>& replicas = {});

/// Returns a sentence about the stage with the most work (F + B) if it is one layer, of more than 1.25 times the
/// mean of all stages, so that no finer cut exists; else an empty text.
std::string why_uneven(const PartitionProblem& problem, const Partition& partition);

}  // namespace tandem::engine
