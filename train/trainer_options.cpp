#include <tandem/train/trainer_options.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/train/model_inputs.h>

namespace tandem {

namespace {

void require(bool met, const std::string& what) {
  if (!met) throw Error("Trainer: " + what);
}

void check_turns(const TrainerOptions& o) {
  const Strategy& s = o.strategy;
  if (o.turns.empty()) return;
  const std::string turns = fmt::format("turns of {} models", fmt::join(o.turns, ", "));
  require(std::ranges::all_of(o.turns, [](int models) { return models >= 1; }) &&
              std::accumulate(o.turns.begin(), o.turns.end(), 0) == s.models,
          fmt::format("{}, and there are {}", turns, s.models));
  std::vector<int> ends(o.turns.size()), arrays(s.arrays.size());
  std::partial_sum(o.turns.begin(), o.turns.end(), ends.begin());
  std::partial_sum(s.arrays.begin(), s.arrays.end(), arrays.begin());
  require(
      arrays.empty() || std::ranges::includes(arrays, ends),
      fmt::format("{}, and arrays of {}: each array must lie in one turn", turns, fmt::join(s.arrays, ", ")));
  require(s.ranks() == 1, fmt::format("{} need one rank, and there are {}", turns, s.ranks()));
  require(o.on_non_finite == OnNonFinite::stop || o.on_non_finite == OnNonFinite::mask,
          fmt::format("{}: a loss that is not finite can end the run or mask its model; no turn can go back "
                      "without the others",
                      turns));
  require(s.measure_prediction.empty(), turns + " have no prediction to measure");
}

}  // namespace

void check(const TrainerOptions& o, const Dataset* train) {
  engine::check(o.strategy);
  check_turns(o);
  require(train != nullptr, "there is no dataset to train on");
  require(o.objective.loss != nullptr, "the objective has no loss");
  require(!o.test || o.objective.correct, "a test set needs objective.correct, which counts correct samples");
  require(o.batch_size >= 1 && o.batch_size <= train->size(),
          fmt::format("batches of {} from a dataset of {}; at least one batch must be full",
                      counted(o.batch_size, "sample"), train->size()));
  require(o.epochs >= 0 && o.batches >= 0 && (o.epochs > 0 || o.batches > 0),
          fmt::format("epochs {}, batches {}: give one of them, or both", o.epochs, o.batches));
  const auto models = static_cast<std::size_t>(o.strategy.models);
  require(o.lr.size() == models && o.seeds.size() == models,
          fmt::format("{} and {} for {}; give one per model", counted(std::ssize(o.lr), "learning rate"),
                      counted(std::ssize(o.seeds), "seed"), counted(o.strategy.models, "model")));
  std::ranges::for_each(o.lr, check_rate);
  require(o.patience >= 0, "patience is negative");
  require(o.patience == 0 || o.test, "patience needs a test set");
  require(o.checkpoint_every >= 0, "checkpoint_every is negative");
  require(o.on_non_finite != OnNonFinite::rollback || o.checkpoint_every > 0,
          "a rollback needs checkpoint_every, which sets where it can go back to");
  require(o.on_non_finite != OnNonFinite::mask || !o.strategy.gradients.loss_scale,
          "models cannot be masked under loss scaling, which skips batches itself");
  require(!o.prunes || o.test, "pruning needs a test set");
  require(o.max_rollbacks >= 0, "max_rollbacks is negative");
  check(o.all_reduces);
  require(
      o.all_reduces.policy.empty() || o.strategy.fusion_groups.empty(),
      fmt::format("all_reduces.policy is {}, and strategy.fusion_groups are made by hand; leave out one of "
                  "them",
                  o.all_reduces.policy));
  require(std::ranges::all_of(o.comms, [](const auto& comm) { return comm != nullptr; }),
          "`comms` has a null pointer instead of a Comm");
  const bool process = o.comms.size() == 1 && o.comms[0]->size() > 1;
  require(process == (o.spare != nullptr),
          "if ranks are processes, and only then, give a second Comm, `spare`");
  const std::int64_t last = o.drop_last ? 0 : train->size() % o.batch_size,
                     parts = std::int64_t{o.strategy.replicas} * o.strategy.microbatches;
  for (const std::int64_t samples : {o.batch_size, last})
    require(samples % parts == 0,
            fmt::format("a batch of {}, which {} × {} do not divide; choose another batch size{}",
                        counted(samples, "sample"), counted(o.strategy.replicas, "replica"),
                        counted(o.strategy.microbatches, "micro-batch"),
                        samples == last ? ", or drop_last" : ""));
}

}  // namespace tandem
