#pragma once
#include <functional>
#include <limits>
#include <optional>
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
/// It needs at most kMostTuningBatches batches. Then it runs the others with the plan, and looks again how
/// long backward takes at the beginning of each call of `run`. No bit depends on any of this: groups and
/// threads change no sum.
///
/// Whatever prevents a plan ends no run: a Program that needs more memory than the strategy allows, times
/// that cannot be fitted, or too few batches. Then the report has a warning, and the batches train with the
/// session's first Program.
class AllReduceTuning {
 public:
  using Build = std::function<engine::Program(const std::vector<FusionGroup>&)>;
  struct Options {
    std::string policy = "libra";
    std::vector<int> threads = {1, 2};  ///< R
    /// All is measured and planned again if backward takes longer, or less, by more than this share than when
    /// it was planned, in two calls of `run` one after another, if the plan has trained kLeastBatchesPerPlan
    /// batches and as many are left. No value: it does not look.
    std::optional<double> drift = 0.1;
    std::int64_t end = std::numeric_limits<std::int64_t>::max();  ///< the batch before which the run ends
    std::optional<AllReduceReport> known{};  ///< on the root rank; replaces steps 1 to 3 if it fits the run
    /// A plan whose backward takes this many times what was predicted, or a fraction so small, has a warning;
    /// if it is from `known`, this run measures its own.
    double far_off = 2;
    int root = 0;                  ///< the rank that plans
    engine::Comm* talk = nullptr;  ///< between ranks that are processes, apart from the session's
  };
  /// `build` makes the run's Program with other groups. `key` says what is measured: with a profile for each
  /// stage that has its gradient_layers and the batch size. The session runs with `host`. All must outlive
  /// this object. Throws Error if there is no such policy, or only for simulations.
  AllReduceTuning(engine::Session& session, engine::Host& host, Build build, AllReduceReport key,
                  Options options);
  ~AllReduceTuning();

  /// On the root rank: why `known` is not used; empty if it is used, or if there is none.
  const std::string& why_unfit() const { return why_unfit_; }
  bool is_planned() const { return step_ == Step::planned; }
  /// Trains up to `most` batches from `first_batch` on; returns how many. Each call drains the schedule. It
  /// returns 0 if `most` is, or if it has just found out that there will be no plan.
  std::int64_t run(std::int64_t first_batch, std::int64_t most);
  /// The Program of the current step; of the plan, if that is made.
  engine::ProgramHandle program() const { return program_; }
  /// Complete on the root rank, once the all-reduces are planned.
  const AllReduceReport& report() const { return report_; }

 private:
  enum class Step { begin, layers, random_plans, result, planned };
  void begin(std::int64_t left);
  std::string use(const std::vector<FusionGroup>& groups);
  void use_plan();
  void use_next_grouping();
  void give_up(const std::string& why);
  void measure(std::int64_t batches);
  void draw_threads();
  void end_step();
  void look_for_drift(std::int64_t left);
  void learn(const engine::Timeline& measured);
  void fit(std::size_t stage);
  void plan(StageAllReduces& stage);
  std::vector<FusionGroup> all_together() const;
  std::vector<FusionGroup> random_groups();
  std::vector<FusionGroup> planned_groups();
  std::string why_known_is_unfit() const;
  void doubt(const std::string& what);
  void take_known();
  engine::Timeline timeline();
  std::string on_root(const std::function<void()>& f);
  std::int64_t from_root(std::int64_t value);
  void broadcast(void* data, std::int64_t bytes);
  std::vector<std::size_t> stages() const;
  bool is_root() const;

  engine::Session& session_;
  engine::Host& host_;
  const Build build_;
  const Options options_;
  const AllReduceReport key_;
  std::mt19937_64 rng_{1};  // the same on all ranks
  Step step_ = Step::begin;
  engine::ProgramHandle program_;
  std::int64_t done_ = 0;  // batches with this Program
  int groupings_ = 0, drifted_ = 0;
  bool has_plan_ = false;  // it did not give up
  AllReduceReport report_;
  std::vector<std::vector<BackwardSample>> samples_;  // by stage
  const std::string why_unfit_;
};

}  // namespace tandem
