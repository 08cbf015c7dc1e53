#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace tandem {

/// Returns the factor of the base learning rate in a batch, counted from 0. A pure function, so a resume
/// needs no state of it.
using LrSchedule = std::function<double(std::int64_t batch)>;

LrSchedule constant_lr();
/// Multiplies by `gamma` after every `every` batches (≥ 1).
LrSchedule step_lr(std::int64_t every, double gamma);
/// Multiplies by `gamma` at each milestone, a batch number; milestones ascend.
LrSchedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma);
/// Goes from 1 to `least` in half a period of the cosine over `batches` (≥ 1), then stays at `least`.
/// (Loshchilov & Hutter 2017, without restarts.)
LrSchedule cosine_lr(std::int64_t batches, double least = 0);
/// Goes linearly from 1 to `last` over `batches` (≥ 1), then stays at `last`.
LrSchedule linear_lr(std::int64_t batches, double last = 0);
/// Goes linearly from `first` to 1 over `batches` (≥ 0), then follows `after`, which counts batches from
/// there.
LrSchedule warm_up(std::int64_t batches, LrSchedule after, double first = 0);

}  // namespace tandem
