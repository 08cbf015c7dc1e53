#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace tandem {

/// What the base learning rate is multiplied with in a batch, counted from 0. A pure function, so resuming
/// needs no state of it.
using LrSchedule = std::function<double(std::int64_t batch)>;

LrSchedule constant_lr();
/// Times `gamma` after every `every` batches (≥ 1).
LrSchedule step_lr(std::int64_t every, double gamma);
/// Times `gamma` at each milestone; they ascend.
LrSchedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma);
/// From 1 to `least` in half a period of the cosine over `batches` (≥ 1), then `least`. (Loshchilov & Hutter
/// 2017, without restarts.)
LrSchedule cosine_lr(std::int64_t batches, double least = 0);
/// From 1 to `last` in equal steps over `batches` (≥ 1), then `last`.
LrSchedule linear_lr(std::int64_t batches, double last = 0);
/// In equal steps from `first` to 1 over `batches` (≥ 0), then `after`, which counts from there.
LrSchedule warm_up(std::int64_t batches, LrSchedule after, double first = 0);

}  // namespace tandem
