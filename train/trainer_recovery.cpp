// What a Trainer does about batches whose loss or gradients are not finite.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <tandem/autograd/batch.h>
#include <tandem/core/error.h>
#include <tandem/plan/non_finite.h>
#include <tandem/plan/training_graph.h>
#include <tandem/train/feed.h>
#include <tandem/train/trainer.h>

namespace tandem {
// The graph of the whole batch once more, forward and backward, node by node, from the state as it is.
std::string Trainer::where_non_finite(std::int64_t batch, const std::map<std::string, Tensor>& state) {
  if (!is_main()) return "";
  TrainFeed host(
      train_, {.batch_size = options_.batch_size, .drop_last = options_.drop_last}, 1, options_.seeds,
      [](std::size_t, std::int64_t) { return 0.0; }, [](std::int64_t, const std::vector<double>&) {});
  Graph graph = trace_forward(model_, *train_, options_.objective, samples_of(batch), true);
  if (options_.strategy.models > 1) graph = tandem::batch(graph, options_.strategy.models);
  const Graph step = training_graph(graph, {.models = options_.strategy.models}).graph;
  const std::string value = first_non_finite(step, state, host, batch, *options_.strategy.kernels);
  return value.empty() ? "" : "the first value that is not finite is " + value;
}

void Trainer::watch(std::int64_t batch) {
  if (bad_ < 0) bad_ = batch;
}

// Drained. True where the run has gone back. All ranks decide alike: the main one knows the losses, and rank
// 0 which updates were skipped.
bool Trainer::recover() {
  if (options_.on_non_finite == OnNonFinite::stop) return false;
  std::int64_t bad = share(std::exchange(bad_, -1), main_rank());
  if (options_.on_non_finite == OnNonFinite::skip) {
    std::int64_t skipped = share(std::exchange(skipped_, -1), 0);
    if (options_.strategy.gradients.loss_scale) skipped = -1;  // the scale was too large: a matter of course
    if (bad < 0 || (skipped >= 0 && skipped < bad)) bad = skipped;
    if (bad < 0 || std::exchange(explained_, true)) return false;
    const std::string where = where_non_finite(bad, session_->state(main_rank()));
    tell(&Callbacks::non_finite, NonFiniteBatch{bad, where});
    return false;
  }
  if (bad < 0 && !state_is_finite()) bad = progress_.batch;  // before it is evaluated, or saved
  if (bad >= 0) roll_back(bad);
  return bad >= 0;
}

// The loss of `batch` was the first that is not finite, which may be due to the update of a batch before: the
// culprit is the last that begins from finite weights.
void Trainer::roll_back(std::int64_t batch) {
  const auto run_again = [&] {
    session_->restore(good_.state);
    progress_ = good_.progress;
    feed_->loader().start(progress_.batch, length_.total);
    run_to(batch);
  };
  const std::int64_t rollbacks = ++good_.progress.rollbacks;
  muted_ = true;
  for (run_again(); !state_is_finite(); run_again())
    if (--batch < good_.progress.batch)
      throw Error("Trainer: the state that the run would go back to is not finite");
  muted_ = false;
  bad_ = -1;
  const std::string where = where_non_finite(batch, session_->state(main_rank()));
  if (rollbacks > options_.max_rollbacks)
    throw NonFinite(
        fmt::format("step {} is not finite, after {}{}{}; lower the learning rate, or look at the data",
                    batch, counted(options_.max_rollbacks, "rollback"), where.empty() ? "" : "; ", where),
        batch);
  left_out_.insert(batch);
  session_->restore(good_.state);
  progress_ = good_.progress;
  feed_->loader().start(progress_.batch, length_.total);
  tail_ = 0;  // the search was no training
  tell(&Callbacks::non_finite, NonFiniteBatch{batch, where, progress_.batch});
}

// What there is to go back to: what a checkpoint holds, when an epoch that ends there is counted.
void Trainer::keep() {
  good_ = {progress_, session_->snapshot()};
  left_out_.clear();
}

bool Trainer::state_is_finite() {
  const auto state = session_->state(main_rank());
  const bool finite =
      is_main() && std::ranges::all_of(state, [](const auto& s) { return all_finite(s.second); });
  return share(finite, main_rank()) != 0;
}

}  // namespace tandem
