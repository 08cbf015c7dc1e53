// A file of `tandem plan memory` with any contents is read, planned, and written again, or refused with an
// Error. What a policy makes is a plan that can be replayed.
#include <cstdlib>

#include <tandem/core/base/error.h>
#include <tandem/memory/memory_policies.h>

#include "fuzzed_file.h"

namespace tandem::testing {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

bool is_small(const MemoryProblem& problem) {  // the search of `optimal` can take long otherwise
  std::size_t nodes = 0;
  for (const MemoryGraph& graph : problem.graphs) nodes += graph.nodes.size();
  return problem.graphs.size() <= 2 && nodes <= 8 && problem.values.size() <= 12;
}

void plan(const MemoryProblem& problem, const MemoryPolicy& policy, std::int64_t limit) {
  CostedPlan made;
  try {
    made = policy.make(problem, limit);
  } catch (const Error&) {  // the problem is none for this policy
    return;
  }
  require(replay(problem, made.plan).peak_bytes == made.cost.peak_bytes);
  require(host_peak(problem, made.plan) >= 0);
}

}  // namespace
}  // namespace tandem::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tandem::testing;
  const FuzzedFile input(data, size);
  MemoryProblem problem;
  try {
    problem = read_memory_problem(input.path());
  } catch (const tandem::Error&) {
    return 0;
  }
  const std::string text = to_json(problem);
  const FuzzedFile written(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  require(to_json(read_memory_problem(written.path())) == text);
  plan(problem, memory_policy("mu-two"), 500);
  if (is_small(problem)) plan(problem, memory_policy("optimal"), 500);
  return 0;
}
