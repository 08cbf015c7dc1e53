#include <tandem/train/recovery.h>

#include <algorithm>

#include <fmt/format.h>

namespace tandem {

Recovery::Recovery(OnNonFinite rule, int most_rollbacks, Recoverable& run)
    : rule_(rule), most_rollbacks_(most_rollbacks), run_(run) {}

void Recovery::loss_not_finite(std::int64_t batch) {
  if (lost_ < 0) lost_ = batch;
}

void Recovery::update_skipped(std::int64_t batch) {
  skipped_ = skipped_ < 0 ? batch : std::min(skipped_, batch);
}

std::int64_t Recovery::next_left_out(std::int64_t begin, std::int64_t end) const {
  const auto next = left_out_.lower_bound(begin);
  return next == left_out_.end() ? end : std::min(*next, end);
}

void Recovery::keep() {
  lost_ = skipped_ = -1;
  searching_ = false;
  if (rule_ != OnNonFinite::rollback) return;
  good_ = {};  // frees the old point first: each is as large as the state
  good_ = run_.point();
  left_out_.clear();
}

bool Recovery::act(std::int64_t end) {
  if (rule_ == OnNonFinite::stop || rule_ == OnNonFinite::mask) return false;
  if (rule_ == OnNonFinite::skip) return report_skipped();
  std::int64_t lost = run_.share(std::exchange(lost_, -1), run_.main_rank());
  if (lost < 0 && !run_.is_finite()) lost = end;  // found before the state is evaluated or saved
  if (lost >= 0) roll_back(lost);
  return lost >= 0;
}

// Reports only the first one of the run.
bool Recovery::report_skipped() {
  std::int64_t first = run_.share(std::exchange(lost_, -1), run_.main_rank());
  const std::int64_t skipped = run_.share(std::exchange(skipped_, -1), 0);
  if (first < 0 || (skipped >= 0 && skipped < first)) first = skipped;
  if (first >= 0 && !std::exchange(reported_, true)) run_.report({first, run_.explain(first)});
  return false;
}

// `batch` is the first whose loss is not finite.
void Recovery::roll_back(std::int64_t batch) {
  const std::optional<std::int64_t> culprit = find_culprit(batch);
  if (!culprit) {  // the run ends early
    run_.go_back(good_);
    run_.report({batch, "", good_.progress.batch, /*is_left_out=*/false});
    return;
  }
  const std::int64_t rollbacks = ++good_.progress.rollbacks;
  const std::string where = run_.explain(*culprit);
  if (rollbacks > most_rollbacks_)
    throw NonFinite(
        fmt::format("step {} is not finite, after {}{}{}; lower the learning rate, or look at the data",
                    *culprit, counted(most_rollbacks_, "rollback"), where.empty() ? "" : "; ", where),
        *culprit);
  left_out_.insert(*culprit);
  run_.go_back(good_);
  run_.report({*culprit, where, good_.progress.batch});
}

// The update of an earlier batch may have caused the loss. So the culprit is the last batch that begins from
// finite weights; the run is left there. Weights that are not finite stay so, so bisection finds it. If the
// run ends early meanwhile, nothing is found.
std::optional<std::int64_t> Recovery::find_culprit(std::int64_t batch) {
  searching_ = true;
  std::int64_t at = -1;
  const auto go_to = [&](std::int64_t b) {
    run_.go_back(good_);
    at = b;
    return run_.go_on(b);
  };
  // last_good begins from finite weights, first_bad does not; the loop moves them towards each other.
  std::int64_t last_good = good_.progress.batch - 1, first_bad = batch + 1;
  for (std::int64_t b = batch; last_good + 1 < first_bad; b = last_good + (first_bad - last_good) / 2) {
    if (!go_to(b)) return end_search(), std::nullopt;
    (run_.is_finite() ? last_good : first_bad) = b;
  }
  if (last_good < good_.progress.batch)
    throw Error("Trainer: the state that the run would go back to is not finite");
  if (at != last_good && !go_to(last_good)) return end_search(), std::nullopt;
  end_search();
  return last_good;
}

void Recovery::end_search() {
  searching_ = false;
  lost_ = -1;
}

}  // namespace tandem
