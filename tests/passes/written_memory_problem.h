// Memory problems that tests write by hand.
#pragma once
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include <tandem/memory/memory_problem.h>

namespace tandem::testing {

/// Values have the numbers that `value` returns. Nodes belong to the graph that was begun last. The link
/// moves ten bytes in a millisecond.
struct WrittenProblem {
  engine::MemoryProblem problem{{}, {}, {.bytes_per_ms = 10}, 0};

  int value(std::int64_t bytes, engine::MemoryValue::Kind kind = engine::MemoryValue::Kind::intermediate) {
    problem.values.push_back({std::ssize(problem.values), bytes, kind});
    return static_cast<int>(std::ssize(problem.values)) - 1;
  }
  void graph(const char* name) { problem.graphs.push_back({name, {}}); }
  void node(const char* name, engine::Phase phase, double ms, std::vector<int> in, std::vector<int> out,
            std::int64_t workspace = 0) {
    problem.graphs.back().nodes.push_back({name, phase, ms, workspace, std::move(in), std::move(out)});
  }
};

}  // namespace tandem::testing
