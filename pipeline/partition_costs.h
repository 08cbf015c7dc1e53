#pragma once
#include <vector>

#include <tandem/pipeline/partition.h>
#include <tandem/pipeline/schedule_costs.h>

namespace tandem::engine {

/// Stages k … N − 1, by all that the period of a partition takes from them. A smaller one in both never makes
/// a partition slower.
struct StagesCost {
  double period = 0;  ///< seconds from one update to the next, because of these stages
  /// Seconds that a micro-batch's way to the end and back takes beyond its computation on one device per
  /// stage. Replicas make it smaller, and even negative.
  double extra = 0;
};

/// The cost model of partitions: docs/pipelines.md, "How it cuts". A stage is given by its number k, its
/// layers [first, end), and its replicas.
class PartitionCosts {
 public:
  /// Throws Error if a number of the problem is out of range.
  explicit PartitionCosts(const PartitionProblem& problem);

  int stages() const { return static_cast<int>(rules_.size()); }
  int layers() const { return static_cast<int>(problem_.layers.size()); }

  /// Seconds that the stage or the link into it makes a unit last. Grows with `end`.
  double pace(int k, int first, int end, int replicas) const;
  /// Bytes of the stage on its device, or on each replica.
  double memory(int k, int first, int end, int replicas) const;
  /// Bytes of the smallest budget per device that has room for the stage: each stage of a device has an equal
  /// share of it.
  double least_budget(int k, int first, int end, int replicas) const;
  /// Bytes that `least_budget` has at least for this end and for all later ones. Grows with `end`.
  double least_budget_from(int k, int first, int end, int replicas) const;
  /// What a stage adds to the costs of the later ones, all in seconds of a micro-batch but `own` and `pace`.
  struct Terms {
    int k = 0;
    double own = 0;       ///< the unit of the stage
    double pace = 0;      ///< that of the stage or of the link into it
    double alone = 0;     ///< F and B in one replica that takes all of it, without anything beside it
    double computed = 0;  ///< F and B as the schedule and the replicas have it
    double crossed = 0;   ///< there and back across the cut behind it
    double rest = 0;      ///< F and B of all later layers
    double ahead = 0;     ///< forwards that it does while it waits for its first gradient
  };
  Terms terms(int k, int first, int end, int replicas) const;
  /// Puts a stage before the later stages.
  StagesCost before(const Terms& stage, const StagesCost& later) const;
  /// Returns by how much stages before layer `first` lengthen the period at least.
  double least_before(int first) const;
  /// Whether a stage can add to the period of the later ones: if every batch waits for the one before.
  bool flushes() const { return !overlaps_batches_; }
  PartitionedStage stage(int k, int first, int end, int replicas) const;

 private:
  struct Rule {  // of a stage, by the schedule
    StageTiming timing;
    int held, versions, predicted;
    CrossingSlots crossing;
    bool has_link;  // into the stage: the one before lies on another device
  };
  struct Sums {  // over layers
    double forward = 0, backward = 0, resident = 0, weights = 0;
  };
  Sums sums(int first, int end) const;
  double crossing_bytes(const PipelineLayer& layer) const;
  /// Replicas among which each micro-batch is divided. With several batches in flight, it is one's.
  int parts(int replicas) const { return overlaps_batches_ ? 1 : replicas; }
  double largest_transient(int first, int end, int parts) const;
  double kept(int k, int first, int end, int replicas) const;
  double crossing_at(double values, double gradients, int layer, int parts) const;
  double unit(int k, int first, int end, int replicas) const;
  double link_unit(int k, int first, int replicas) const;
  double all_reduce(double weight_bytes, int replicas) const;
  double crossing(int k, int end) const;

  const PartitionProblem& problem_;
  std::vector<Rule> rules_;
  std::vector<Sums> before_;  // of all layers before one
  /// [j][i]: the most bytes that one of layers i … i + 2ʲ − 1 needs for a moment: what goes to the next layer
  /// and comes back, and its gradient while micro-batches are added up.
  using Largest = std::vector<std::vector<double>>;
  Largest largest_of(int parts) const;
  std::vector<Largest> largest_;  // by parts of a micro-batch, from one on
  double microbatches_ = 1;
  double stages_of_device_ = 1;  // of the device that has most
  bool overlaps_batches_ = false;
};

}  // namespace tandem::engine
