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
      const MemoryNode& n = nodes[static_cast<std::size_t>(list[i])];
      left[i] = left[i + 1] + n.run_ms;
      read[i] = (read[i + 1] & ~set_of(n.outputs)) | set_of(n.inputs);
    }
    left_ms_.push_back(std::move(left));
    read_later_.push_back(std::move(read));
    find_last_repeats(g);
  }
}

void NumberedProblem::number_values() {
  for (int v = 0; v < std::ssize(p_.values); ++v)
    if (kind(v) != Kind::parameter) {
      number_.emplace(v, static_cast<int>(values.size()));
      values.push_back(v);
    }
  if (p_.graphs.size() > 2)
    throw Error(
        fmt::format("the optimal plan is searched for one graph or a pair; this problem has {} graphs",
                    p_.graphs.size()));
  if (values.size() > kMostValues)
    throw Error(fmt::format(
        "the optimal plan is searched for at most {} values beside parameters; this problem has {}",
        kMostValues, values.size()));
  for (std::size_t g = 0; g < p_.graphs.size(); ++g)
    for (const MemoryNode& n : p_.graphs[g].nodes)
      for (const int v : n.outputs) {
        if (n.phase != Phase::forward) continue;
        maker[static_cast<std::size_t>(number_.at(v))] = {static_cast<int>(g),
                                                          static_cast<int>(&n - p_.graphs[g].nodes.data())};
        of_forward |= set_of(v);
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
  const auto& nodes = p_.graphs[0].nodes;
  for (auto n = nodes.rbegin(); n != nodes.rend(); ++n)
    if (n->phase != Phase::forward || (set_of(n->outputs) & crossing) != 0)
      crossing |= set_of(n->inputs) & of_forward;
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

Set NumberedProblem::set_of(const std::vector<int>& of) const {
  Set s = 0;
  for (const int v : of)
    if (kind(v) != Kind::parameter) s |= set_of(v);
  return s;
}

std::int64_t NumberedProblem::bytes_of(Set s) const {
  std::int64_t sum = 0;
  for (; s != 0; s &= s - 1) sum += p_.values[static_cast<std::size_t>(value(std::countr_zero(s)))].bytes;
  return sum;
}

}  // namespace tandem::engine::optimal
