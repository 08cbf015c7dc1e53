#pragma once
#include <tandem/train/all_reduce_report.h>

namespace tandem::apps {

/// Logs what was planned of the all-reduces from a run's first batches, how long backward takes with it, and
/// how long it would take with other plans.
void say_all_reduces(const AllReduceReport& report);

}  // namespace tandem::apps
