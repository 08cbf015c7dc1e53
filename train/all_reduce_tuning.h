#pragma once
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <tandem/core/runtime/comm.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/runtime/session.h>
#include <tandem/dist/contention_fit.h>
#include <tandem/dist/fusion_group.h>
#include <tandem/train/all_reduce_report.h>

namespace tandem {

/// Plans the all-reduces of a run from its first batches, which train as all others do (LIBRA, Algorithm 2):
///   1. Batches that reduce everything after backward give the layers' times.
///   2. Batches with random groups and threads show how all-reduces and backward slow each other down.
///   3. A fit of the contention model (contention_fit.h).
///   4. One rank plans by the policy, and the others get its plan.
///   5. Some batches with the plan show how long backward takes with it.
/// No bit depends on it: groups and threads change no sum. It needs at most kMostTuningBatches batches.
class AllReduceTuning {
 public:
  using Build = std::function<engine::Program(const std::vector<FusionGroup>&)>;
  struct Options {
    std::string policy = "libra";       ///< one that plans from times
    std::vector<int> threads = {1, 2};  ///< R
    int root = 0;                       ///< the rank that plans
    engine::Comm* talk = nullptr;       ///< between ranks that are processes, apart from the session's
  };
  /// `build` makes the run's Program with other groups; `stages` are its gradient_layers. The session runs
  /// with `host`. All must outlive this object. Throws Error if the policy cannot be planned from measured
  /// times.
  AllReduceTuning(engine::Session& session, engine::Host& host, Build build,
                  std::vector<std::vector<GradientLayer>> stages, Options options);
  ~AllReduceTuning();

  bool finished() const { return step_ == Step::finished; }
  /// Trains up to `most` batches from `first_batch` on; returns how many.
  std::int64_t run(std::int64_t first_batch, std::int64_t most);
  /// The Program with the plan, once it is finished.
  engine::ProgramHandle program() const { return program_; }
  /// Complete on the root rank, once it is finished.
  const AllReduceReport& report() const { return report_; }

 private:
  enum class Step { layers, random_plans, result, finished };
  void use(const std::vector<FusionGroup>& groups);
  void draw_threads();
  void end_step();
  std::vector<FusionGroup> random_groups();
  std::vector<FusionGroup> planned_groups();
  void plan(StageAllReduces& stage);
  engine::Timeline timeline();
  bool is_root() const;

  engine::Session& session_;
  engine::Host& host_;
  const Build build_;
  const Options options_;
  const int replicas_;
  std::mt19937_64 rng_{1};  // the same on all ranks
  Step step_ = Step::layers;
  engine::ProgramHandle program_;
  std::int64_t done_ = 0;  // batches with this Program
  int groupings_ = 0;
  AllReduceReport report_;
  std::vector<std::vector<BackwardSample>> samples_;  // by stage
};

}  // namespace tandem
