#pragma once
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tandem::apps {

struct MemoryPlanOptions {
  std::string graph, limit;
  std::vector<std::string> policies{"mu-two+"};
  bool json = false, timeline = false;
  std::string trace;
};
void add_memory_plan_options(CLI::App& command, MemoryPlanOptions& options);
/// Plans the memory of a graph, or of a ring of several, under a limit by each policy, and prints what the
/// plans cost; with `json`, also their instructions (docs/memory.md); draws their timelines, and writes that
/// of the last policy to a file for ui.perfetto.dev. A limit that no plan keeps is an answer, not an error.
void plan_memory(const MemoryPlanOptions& options);

}  // namespace tandem::apps
