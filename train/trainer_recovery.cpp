// What a Trainer does for its Recovery, and to say where a value that is not finite comes from.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <tandem/autograd/training_graph.h>
#include <tandem/autograd/vmap.h>
#include <tandem/train/feed.h>
#include <tandem/train/non_finite.h>
#include <tandem/train/state_link.h>
#include <tandem/train/trainer.h>

namespace tandem {
using namespace engine;

RunPoint Trainer::point() const {
  link_->send();
  return {progress_, session_->snapshot()};
}

void Trainer::go_back(const RunPoint& point) {
  limit_.begin_at(point.progress.batch);
  session_->restore(point.state);
  link_->changed(session_->written());
  progress_ = point.progress;
  unmeasured_.clear();
  measured_.clear();
  feed_->start(progress_.batch, length_.total);
  timer_.forget_tail();
  evaluated_ = -1;
}

std::string Trainer::explain(std::int64_t batch) {
  return where_non_finite(batch, session_->state(main_rank()));
}

// Computes the graph of the whole batch again, forward and backward, node by node. If that fails, says why,
// so that the caller can still report the batch.
std::string Trainer::where_non_finite(std::int64_t batch, const StateDict& state) try {
  if (!is_main()) return "";
  TrainFeed host(
      data(), {.batch_size = options_.batch_size, .drop_last = options_.drop_last}, 1,
      active_->in_session(options_.seeds), [](std::size_t, std::int64_t) { return 0.0; },
      [](std::int64_t, const std::vector<double>&) {});
  Graph graph = forward(samples_of(batch), true);
  if (strategy_.models > 1) graph = tandem::vmap(graph, strategy_.models);
  const Graph step = training_graph(graph, {.models = strategy_.models}).graph;
  const std::string value = first_non_finite(step, state, host, batch, *options_.strategy.kernels);
  return value.empty() ? "" : "the first value that is not finite is " + value;
} catch (const std::exception& e) {
  return fmt::format("the first value that is not finite could not be found: {}", e.what());
}

bool Trainer::is_finite() const {
  std::int64_t finite = session_->is_finite();
  for (const auto& [model, state] : waiting_)
    finite = finite && std::ranges::all_of(waiting_state(model),
                                           [](const auto& entry) { return all_finite(entry.second); });
  const int ranks = options_.spare ? options_.spare->size() : 1;
  for (int rank = 0; rank < ranks; ++rank) finite = std::min(finite, share(finite, rank));
  return finite != 0;
}

void Trainer::help_explain() {
  if (!options_.spare) return;
  session_->remains(main_rank(), options_.spare.get());
  std::vector<int> all(static_cast<std::size_t>(options_.spare->size()));
  std::iota(all.begin(), all.end(), 0);
  options_.spare->barrier(all, 0);
}

}  // namespace tandem
