#include <tandem/memory/optimal_problem.h>

#include <bit>

#include <fmt/format.h>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/error.h>

namespace tandem::engine::optimal {

using Kind = MemoryValue::Kind;

NumberedProblem::NumberedProblem(const MemoryProblem& problem) : p_(problem) {
  number_values();
  for (int g = 0; g < std::ssize(p_.graphs); ++g) {
    const auto& nodes = p_.graphs[static_cast<std::size_t>(g)].nodes;
    const int first = p_.is_ring() && g == 0 ? p_.graphs[0].forward_nodes() : 0;
    std::vector<int>& list = order.emplace_back();
    for (int i = 0; i < std::ssize(nodes); ++i)
      list.push_back(static_cast<int>((first + i) % std::ssize(nodes)));
    std::vector<double> left(nodes.size() + 1, 0);
    std::vector<Set> read(nodes.size() + 1, 0);
    for (std::size_t i = nodes.size(); i-- > 0;) {
      left[i] = left[i + 1] + node(g, list[i]).run_ms;
      read[i] = (read[i + 1] & ~made_by(g, list[i])) | read_by(g, list[i]);
    }
    left_ms_.push_back(std::move(left));
    read_later_.push_back(std::move(read));
    find_last_repeats(g);
  }
}

void NumberedProblem::number_values() {
  for (int v = 0; v < std::ssize(p_.values); ++v)
    if (kind(v) != Kind::parameter) values.push_back(v);
  if (p_.graphs.size() > 2)
    throw Error(
        fmt::format("the optimal plan is searched for one graph or a pair; this problem has {} graphs",
                    p_.graphs.size()));
  if (values.size() > kMostValues)
    throw Error(fmt::format(
        "the optimal plan is searched for at most {} values beside parameters; this problem has {}",
        kMostValues, values.size()));
  sets_.assign(p_.values.size(), 0);
  for (std::size_t i = 0; i < values.size(); ++i) sets_[static_cast<std::size_t>(values[i])] = Set{1} << i;
  for (int g = 0; g < std::ssize(p_.graphs); ++g) {
    const auto& nodes = p_.graphs[static_cast<std::size_t>(g)].nodes;
    std::vector<NodeSets>& sets = node_sets_.emplace_back();
    for (int n = 0; n < std::ssize(nodes); ++n) {
      sets.push_back({union_of(node(g, n).inputs), union_of(node(g, n).outputs)});
      if (node(g, n).phase != Phase::forward) continue;
      for (Set s = made_by(g, n); s != 0; s &= s - 1)
        maker[static_cast<std::size_t>(std::countr_zero(s))] = {g, n};
      of_forward |= made_by(g, n);
    }
  }
  for (const int v : values) {
    if (kind(v) == Kind::input) inputs |= set_of(v);
    if (kind(v) == Kind::output) outputs |= set_of(v);
    if (kind(v) == Kind::intermediate) intermediate |= set_of(v);
  }
  if (p_.is_ring()) find_crossing();
}

// What backward reads, and the sources from which that could be made again.
void NumberedProblem::find_crossing() {
  for (int n = static_cast<int>(p_.graphs[0].nodes.size()) - 1; n >= 0; --n)
    if (node(0, n).phase != Phase::forward || (made_by(0, n) & crossing) != 0)
      crossing |= read_by(0, n) & of_forward;
}

void NumberedProblem::find_last_repeats(int g) {
  const auto& nodes = p_.graphs[static_cast<std::size_t>(g)].nodes;
  std::vector<int>& last = repeated_until_.emplace_back(nodes.size(), places(g));
  for (std::size_t n = 0; n < nodes.size(); ++n)
    for (int i = places(g) - 1; i >= 0; --i)
      if (const MemoryNode& update = at(g, i);
          update.phase == Phase::update && std::ranges::any_of(nodes[n].inputs, [&](int v) {
            return kind(v) == Kind::parameter && contains(update.inputs, v);
          }))
        last[n] = i;
}

Set NumberedProblem::union_of(const std::vector<int>& of) const {
  Set s = 0;
  for (const int v : of) s |= set_of(v);
  return s;
}

std::int64_t NumberedProblem::bytes_of(Set s) const {
  std::int64_t sum = 0;
  for (; s != 0; s &= s - 1) sum += p_.values[static_cast<std::size_t>(value(std::countr_zero(s)))].bytes;
  return sum;
}

}  // namespace tandem::engine::optimal
