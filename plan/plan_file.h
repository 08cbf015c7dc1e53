#pragma once
#include <string>

#include <tandem/plan/strategy.h>

namespace tandem {

/// Reads decisions from a JSON file into a strategy:
///
///     {"cuts": ["block2"],                               first module of each stage but the first
///      "fusion_groups": [["head.weight", "head.bias"]],  parameters reduced together
///      "swap": ["block0"], "recompute": ["block3 relu"]} activations, by module or by module and op
///
/// All keys are optional. Throws Error naming the file and what is wrong: unreadable, not JSON, unknown key.
void read_plan(const std::string& file, Strategy& strategy);

}  // namespace tandem
