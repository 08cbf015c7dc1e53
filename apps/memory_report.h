#pragma once
#include <string_view>
#include <vector>

#include <tandem/core/schedule/program.h>
#include <tandem/ops/copy_link.h>
#include <tandem/plan/array_partition.h>
#include <tandem/plan/memory_budget.h>

namespace tandem::apps {

/// Reads "32GB/s", or "32GB/s,shared" for a link that one copy at a time passes. Throws Error saying what is
/// wrong.
engine::CopyLink parse_copy_link(std::string_view text);

/// Logs what the plan of each device does, and what it is predicted to cost.
void say_memory_plans(const std::vector<engine::DevicePlan>& plans, const Strategy& strategy);

/// Prints what each partition of the models costs, or why it is impossible; or, unless `all`, logs how many
/// are possible.
void say_partitions(const std::vector<engine::PartitionVerdict>& verdicts, bool all);

/// Prints a table of what the plans do with each activation, the largest first.
void explain_memory_plans(const std::vector<engine::DevicePlan>& plans, const Strategy& strategy);

}  // namespace tandem::apps
