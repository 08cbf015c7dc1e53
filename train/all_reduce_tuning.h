#pragma once
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <tandem/core/runtime/host.h>
#include <tandem/core/runtime/session.h>
#include <tandem/dist/contention_fit.h>
#include <tandem/dist/fusion_group.h>
#include <tandem/train/all_reduce_options.h>
#include <tandem/train/rank_talk.h>

namespace tandem {

/// Plans the all-reduces of a run from its first batches, which train as all others do (LIBRA, Algorithm 2):
///   1. Batches that reduce everything after backward give the layers' times.
///   2. Batches with random groups and threads show how all-reduces and backward slow each other down.
///   3. A fit of the contention model (contention_fit.h).
///   4. One rank plans by the policy, and the others get its plan.
///   5. Some batches with the plan show how long backward takes with it.
/// It needs at most kMostTuningBatches batches; if a saved measurement proves far off, after 6 others. Then
/// it runs the others with the plan, and looks again how long backward takes at the beginning of each call of
/// `run`. No bit depends on any of this: groups and threads change no sum.
///
/// Whatever prevents a plan ends no run: a Program that needs more memory than the strategy allows or a rank
/// has, times that cannot be fitted, or too few batches. Then the report has a warning, and the batches train
/// with the session's first Program.
class AllReduceTuning {
 public:
  using Build = std::function<engine::Program(const std::vector<FusionGroup>&)>;
  static constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();
  /// `build` makes the run's Program with other groups. `key` says what is measured. The session runs with
  /// `host`, and the run ends before batch `end`. If ranks are processes, `talk` has a Comm of its own. All
  /// must outlive this object. Throws Error if options are out of range (all_reduce_options.h), or name no
  /// policy.
  AllReduceTuning(engine::Session& session, engine::Host& host, Build build, AllReduceKey key,
                  AllReduceOptions options, std::int64_t end = kNoEnd, const RankTalk& talk = RankTalk());
  ~AllReduceTuning();

  /// On the root rank: why `known` is not used; empty if it is used, or if there is none.
  const std::string& why_unfit() const { return why_unfit_; }
  bool is_planned() const { return step_ == Step::planned; }
  /// Trains up to `most` batches from `first_batch` on; returns how many. Each call drains the schedule. It
  /// returns 0 if `most` is, or if it has just found out that there will be no plan. Once the all-reduces are
  /// planned, `limit` can end it earlier.
  std::int64_t run(std::int64_t first_batch, std::int64_t most, engine::RunLimit* limit = nullptr);
  /// The Program of the current step; of the plan, if that is made.
  engine::ProgramHandle program() const { return program_; }
  /// Complete on the root rank, once the all-reduces are planned.
  const AllReduceReport& report() const { return report_; }

 private:
  enum class Step { begin, layers, random_plans, result, planned };
  void begin(std::int64_t left);
  void begin_again(const std::string& reason);
  std::string use(const std::vector<FusionGroup>& groups);
  void use_plan();
  void use_next_grouping();
  void give_up(const std::string& why);
  void measure(std::int64_t batches);
  void draw_threads();
  void end_step();
  std::string far_off() const;
  void look_for_drift(std::int64_t left);
  void learn(const engine::Timeline& measured);
  void fit(std::size_t device);
  void plan(DeviceAllReduces& device);
  std::vector<FusionGroup> all_together() const;
  std::vector<FusionGroup> random_groups();
  std::vector<FusionGroup> planned_groups();
  std::string why_known_is_unfit() const;
  void doubt(const std::string& what);
  void take_known();
  engine::Timeline timeline();
  std::vector<std::size_t> devices() const;

  engine::Session& session_;
  engine::Host& host_;
  const Build build_;
  const AllReduceOptions options_;  // whose threads rise
  const std::int64_t end_;
  const RankTalk talk_;
  const AllReduceKey key_;
  std::mt19937_64 rng_{1};  // the same on all ranks
  Step step_ = Step::begin;
  engine::ProgramHandle program_;
  std::int64_t done_ = 0;  // batches with this Program
  int groupings_ = 0, used_groupings_ = 0, drifted_ = 0;
  bool has_plan_ = false;         // it did not give up
  bool distrusts_known_ = false;  // it has measured since, or found it far off
  AllReduceReport report_;
  std::vector<std::vector<BackwardSample>> samples_;  // by device
  const std::string why_unfit_;
};

}  // namespace tandem
