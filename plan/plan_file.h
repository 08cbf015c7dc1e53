#pragma once
#include <string>

#include <tandem/plan/strategy.h>

namespace tandem::engine {

/// Reads decisions from a JSON file into a strategy:
///
///     {"cuts": ["block2"],                               first module of each stage but the first
///      "fusion_groups": [["head.weight", "head.bias"]],  parameters reduced together
///      "swap": ["block0"], "recompute": ["block3 relu"]} activations, by module or by module and op
///
/// Those left out mean none. Throws Error naming the file and what is wrong: unreadable, not JSON, a key
/// unknown or given twice, a value of another type.
void read_plan(const std::string& file, Strategy& strategy);

}  // namespace tandem::engine
