#include <tandem/pipeline/partition.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/pipeline/partition_costs.h>

namespace tandem::engine {
namespace {

constexpr double kRounding = 1 + 1e-9;
constexpr double kNever = std::numeric_limits<double>::infinity();

struct Piece {  // a stage
  int first, end, replicas;
};

// What a stage k with layers [first, end) costs; and what it costs at least with this end and with all later
// ones, which does not fall as `end` grows.
struct PieceCost {
  double exact = 0, least = 0;
};

/// Finds the partition whose largest cost of a stage is smallest.
class Minimax {
 public:
  using Cost = std::function<PieceCost(int k, const Piece&)>;
  Minimax(int stages, int layers, int spare, const Cost& cost)
      : stages_(stages), layers_(layers), spare_(spare), cells_(static_cast<std::size_t>(stages)) {
    for (auto& cells : cells_)
      cells.resize(static_cast<std::size_t>(layers + 1) * static_cast<std::size_t>(spare + 1));
    for (int k = stages; k-- > 0;)
      for (int first = k; first <= layers - (stages - k); ++first)
        for (int spare_left = 0; spare_left <= spare; ++spare_left)
          cells_[static_cast<std::size_t>(k)][at(first, spare_left)] = best(k, first, spare_left, cost);
  }

  double cost() const { return cell(0, 0, spare_).cost; }
  /// The stages of such a partition. There must be one of finite cost.
  std::vector<Piece> pieces() const {
    std::vector<Piece> result;
    int first = 0, spare = spare_;
    for (int k = 0; k < stages_; ++k) {
      const Cell& best = cell(k, first, spare);
      result.push_back({first, best.end, best.replicas});
      first = best.end;
      spare -= best.replicas - 1;
    }
    return result;
  }

 private:
  struct Cell {  // the best stages from one on, if its first layer is given
    double cost = kNever;
    int end = 0, replicas = 1;
  };
  const Cell& cell(int k, int first, int spare) const {
    return cells_[static_cast<std::size_t>(k)][at(first, spare)];
  }
  std::size_t at(int first, int spare) const {
    return static_cast<std::size_t>(first * (spare_ + 1) + spare);
  }
  Cell best(int k, int first, int spare, const Cost& cost) {
    Cell best;
    const bool is_last = k == stages_ - 1;
    for (int replicas = 1; replicas <= spare + 1; ++replicas)
      for (int end = is_last ? layers_ : first + 1; end <= layers_ - (stages_ - 1 - k); ++end) {
        const auto [own, least] = cost(k, {first, end, replicas});
        if (least >= best.cost) break;
        const double all = is_last ? own : std::max(own, cell(k + 1, end, spare - (replicas - 1)).cost);
        if (all < best.cost) best = {all, end, replicas};
      }
    return best;
  }

  int stages_, layers_, spare_;
  std::vector<std::vector<Cell>> cells_;
};

/// Finds the partition with the shortest period. A cell of the dynamic program keeps all costs of later
/// stages of which none is better in both parts, because only the period of all stages weighs these.
class Search {
 public:
  explicit Search(const PartitionProblem& problem)
      : problem_(problem),
        costs_(problem),
        stages_(costs_.stages()),
        layers_(costs_.layers()),
        spare_(problem.spare_devices),
        has_budget_(problem.memory_budget > 0) {}

  Partition run() {
    if (has_budget_) check_budget();
    const Minimax fastest(stages_, layers_, spare_, [&](int k, const Piece& p) -> PieceCost {
      if (!can_fit(k, p)) return {kNever, kNever};
      return {fits(k, p) ? pace(k, p) : kNever, pace(k, p)};
    });
    least_period_ = fastest.cost();
    shortest_ = cost_of(fastest.pieces()).period;
    const std::vector<Piece> even = best(least_period_);
    if (shortest_ <= least_period_) return partition_of(even);
    const double shortest_even = shortest_;
    const std::vector<Piece> any = best(shortest_);
    return partition_of(shortest_even <= shortest_ * kRounding ? even : any);
  }

  double least_budget() const { return smallest(spare_).cost(); }

  Partition partition_of(const std::vector<Piece>& pieces) const {
    Partition result;
    for (int k = 0; k < stages_; ++k) {
      const Piece& p = pieces[static_cast<std::size_t>(k)];
      result.stages.push_back(costs_.stage(k, p.first, p.end, p.replicas));
    }
    result.period = cost_of(pieces).period;
    return result;
  }

 private:
  // Costs that rise in period and fall in extra.
  using Front = std::vector<StagesCost>;

  Front& cell(int k, int first, int spare) {
    return cells_[static_cast<std::size_t>(k)][static_cast<std::size_t>(first * (spare_ + 1) + spare)];
  }

  PartitionCosts::Terms terms(int k, const Piece& p) const {
    return costs_.terms(k, p.first, p.end, p.replicas);
  }
  double pace(int k, const Piece& p) const { return costs_.pace(k, p.first, p.end, p.replicas); }

  // Returns the first of the partitions with the shortest period that have no stage or link slower than
  // `slowest`, and sets shortest_, which must not be below it.
  std::vector<Piece> best(double slowest) {
    slowest_ = slowest;
    cells_.assign(static_cast<std::size_t>(stages_), {});
    for (auto& cells : cells_)
      cells.resize(static_cast<std::size_t>(layers_ + 1) * static_cast<std::size_t>(spare_ + 1));
    for (int k = stages_; k-- > 0;)
      for (int first = k; first <= (k == 0 ? 0 : layers_ - (stages_ - k)); ++first)
        for (int spare = 0; spare <= spare_; ++spare) fill(k, first, spare);
    for (const StagesCost& cost : cell(0, 0, spare_)) shortest_ = std::min(shortest_, cost.period);
    return first_pieces();
  }

  double budget_for(int k, const Piece& p) const {
    return costs_.least_budget(k, p.first, p.end, p.replicas);
  }
  bool fits(int k, const Piece& p) const {
    return !has_budget_ || budget_for(k, p) <= problem_.memory_budget;
  }
  // Whether the stage, or one that ends later, can be within the budget.
  bool can_fit(int k, const Piece& p) const {
    return !has_budget_ || costs_.least_budget_from(k, p.first, p.end, p.replicas) <= problem_.memory_budget;
  }

  // Of the first stages of a partition and what its later stages cost.
  StagesCost cost_of(const std::vector<Piece>& pieces, StagesCost later = {}) const {
    for (auto k = pieces.size(); k-- > 0;)
      later = costs_.before(terms(static_cast<int>(k), pieces[k]), later);
    return later;
  }

  static void add(Front& front, const StagesCost& cost) {
    const auto at = std::ranges::upper_bound(front, cost.period, {}, &StagesCost::period);
    if (at != front.begin() && std::prev(at)->extra <= cost.extra) return;
    auto first_worse = at;
    while (first_worse != front.begin() && std::prev(first_worse)->period == cost.period) --first_worse;
    auto end = at;
    while (end != front.end() && end->extra >= cost.extra) ++end;
    front.insert(front.erase(first_worse, end), cost);
  }

  // Calls `use` with each next stage that is not too slow and fits the budget, and the costs of the stages
  // after it, until `use` returns true.
  bool for_next(int k, int first, int spare, const std::function<bool(const Piece&, const Front&)>& use) {
    static const Front kNone{{}};
    const bool is_last = k == stages_ - 1;
    for (int end = is_last ? layers_ : first + 1; end <= layers_ - (stages_ - 1 - k); ++end) {
      bool possible = false;
      for (int replicas = 1; replicas <= spare + 1; ++replicas) {
        const Piece piece{first, end, replicas};
        if (!can_fit(k, piece) || pace(k, piece) > slowest_) continue;
        possible = true;
        if (!fits(k, piece)) continue;
        if (use(piece, is_last ? kNone : cell(k + 1, end, spare - (replicas - 1)))) return true;
      }
      if (!possible) return false;
    }
    return false;
  }

  void fill(int k, int first, int spare) {
    Front& front = cell(k, first, spare);
    const double before = costs_.least_before(first);
    for_next(k, first, spare, [&](const Piece& p, const Front& later) {
      const PartitionCosts::Terms stage = terms(k, p);
      for (const StagesCost& rest : later) {
        StagesCost cost = costs_.before(stage, rest);
        if (!costs_.flushes())
          cost.period = std::max(cost.period, least_period_);  // as every partition has in the end
        if (cost.period + before <= shortest_ * kRounding) add(front, cost);
      }
      return false;
    });
  }

  // The first of the partitions with the shortest period.
  std::vector<Piece> first_pieces() {
    std::vector<Piece> pieces;
    int first = 0, spare = spare_;
    for (int k = 0; k < stages_; ++k) {
      for_next(k, first, spare, [&](const Piece& p, const Front& later) {
        pieces.push_back(p);
        if (std::ranges::any_of(
                later, [&](const StagesCost& rest) { return cost_of(pieces, rest).period <= shortest_; }))
          return true;
        pieces.pop_back();
        return false;
      });
      first = pieces.back().end;
      spare -= pieces.back().replicas - 1;
    }
    return pieces;
  }

  // The partition that needs the smallest budget, with so many spare devices.
  Minimax smallest(int spare) const {
    return {stages_, layers_, spare, [&](int k, const Piece& p) -> PieceCost {
              return {budget_for(k, p), costs_.least_budget_from(k, p.first, p.end, p.replicas)};
            }};
  }

  void check_budget() const {
    const double budget = problem_.memory_budget;
    if (spare_ > 0 && smallest(0).cost() <= budget) return;
    const Minimax least = smallest(spare_);
    if (least.cost() <= budget) return;
    const std::vector<Piece> pieces = least.pieces();
    std::size_t k = 0;
    while (budget_for(static_cast<int>(k), pieces[k]) < least.cost()) ++k;
    const int stage = static_cast<int>(k);
    const int replicas = pieces[k].replicas;
    const double needed = costs_.memory(stage, pieces[k].first, pieces[k].end, replicas);
    const double share = budget * needed / least.cost();  // of the stages of its device
    const auto name = [&](int layer) { return problem_.layers[static_cast<std::size_t>(layer)].name; };
    throw Error(fmt::format(
        "the memory budget of {:.0f} bytes is too small: even with the cuts that need least, stage {} ('{}' to "
        "'{}') needs {:.0f} bytes{}, which is {:.0f} more than {}; the smallest budget that works with {} is {:.0f}",
        budget, stage, name(pieces[k].first), name(pieces[k].end - 1), std::ceil(needed),
        replicas > 1 ? fmt::format(" on each of its {} replicas", replicas) : "", std::ceil(needed - share),
        share < budget ? "its share of it" : "that", counted(stages_, "stage"), std::ceil(least.cost())));
  }

  const PartitionProblem& problem_;
  const PartitionCosts costs_;
  const int stages_, layers_, spare_;
  const bool has_budget_;
  double least_period_ = 0, shortest_ = kNever, slowest_ = kNever;
  std::vector<std::vector<Front>> cells_;
};

}  // namespace

void keep(std::vector<PipelineLayer>& layers, const std::set<int>& keepers, double bytes) {
  if (keepers.empty()) return;
  const auto at = [&](int layer) -> PipelineLayer& { return layers[static_cast<std::size_t>(layer)]; };
  at(*keepers.begin()).resident_bytes += bytes;
  for (int later = *keepers.begin() + 1; later <= *keepers.rbegin(); ++later) at(later).shared_bytes += bytes;
}

std::vector<int> Partition::cuts() const {
  std::vector<int> cuts;
  for (std::size_t k = 1; k < stages.size(); ++k) cuts.push_back(stages[k].first);
  return cuts;
}

Partition best_partition(const PartitionProblem& problem) { return Search(problem).run(); }

std::vector<std::string> names_of(const PartitionProblem& problem, const std::vector<int>& layers) {
  std::vector<std::string> names;
  for (const int layer : layers) names.push_back(problem.layers[static_cast<std::size_t>(layer)].name);
  return names;
}

double least_memory_budget(const PartitionProblem& problem) { return Search(problem).least_budget(); }

Partition partition_at(const PartitionProblem& problem, const std::vector<int>& cuts,
                       const std::vector<int>& replicas) {
  const Search search(problem);
  const auto stages = problem.schedule.stages.size();
  if (cuts.size() + 1 != stages || (!replicas.empty() && replicas.size() != stages))
    throw Error(fmt::format("{} take one cut fewer, and replicas of each: there are {} and {}",
                            counted(std::ssize(problem.schedule.stages), "stage"),
                            counted(std::ssize(cuts), "cut"), counted(std::ssize(replicas), "number")));
  std::vector<Piece> pieces;
  int used = 0;
  for (std::size_t k = 0; k < stages; ++k) {
    const int end = k + 1 < stages ? cuts[k] : static_cast<int>(problem.layers.size());
    const Piece piece{k == 0 ? 0 : cuts[k - 1], end, replicas.empty() ? 1 : replicas[k]};
    if (piece.end <= piece.first || piece.end > std::ssize(problem.layers) || piece.replicas < 1)
      throw Error(
          fmt::format("stage {} of a partition has layers {} to {} of {}, and {}: it needs one or more", k,
                      piece.first, piece.end, problem.layers.size(), counted(piece.replicas, "replica")));
    used += piece.replicas - 1;
    pieces.push_back(piece);
  }
  if (used > problem.spare_devices)
    throw Error(fmt::format("replicas on {}, of {}", counted(used, "spare device"), problem.spare_devices));
  return search.partition_of(pieces);
}

std::string why_uneven(const PartitionProblem& problem, const Partition& partition) {
  constexpr double kUneven = 1.25;
  const auto work = [](const PartitionedStage& s) { return s.forward + s.backward; };
  double sum = 0;
  for (const PartitionedStage& s : partition.stages) sum += work(s);
  const auto most = std::ranges::max_element(partition.stages, {}, work);
  const double ratio = work(*most) * static_cast<double>(partition.stages.size()) / sum;
  if (most->end - most->first > 1 || ratio <= kUneven) return "";
  return fmt::format("stage {} is one layer, {}, with {:.2f} times the mean work: no finer cut exists",
                     most - partition.stages.begin(),
                     problem.layers[static_cast<std::size_t>(most->first)].name, ratio);
}

}  // namespace tandem::engine
