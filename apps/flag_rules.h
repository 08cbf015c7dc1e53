#pragma once
#include <string>
#include <utility>
#include <vector>

#include <tandem/engine.h>

#include "flags.h"

// What the rows of the table of flags (flags.cpp) are made of: which values a flag accepts, when it has an
// effect, and what it changes where other flags decide that.
namespace tandem::apps {

/// Values that a flag accepts.
inline const Allowed any;
inline Allowed at_least(double least) { return {.least = least}; }
inline Allowed between(double least, double most) { return {.least = least, .most = most}; }
inline Allowed one_of(std::vector<std::string> texts) { return {.texts = std::move(texts)}; }
inline Allowed checked(double least, void (*check)(const TrainOptions&)) {
  return {.least = least, .check = check};
}
/// Texts that `read` can read, or none.
template <class Read> Allowed readable(std::string TrainOptions::*text, const Read& read) {
  return {.check = [=](const TrainOptions& o) {
    if (!(o.*text).empty()) read(o.*text);
  }};
}

/// Throw Error for values that do not fit together.
void check_betas(const TrainOptions& options);
void check_measured(const TrainOptions& options);
void check_arrays(const TrainOptions& options);
void check_turns(const TrainOptions& options);
void check_loss_scale(const TrainOptions& options);

/// A flag has an effect always, if a member is set, or if it is not. `why` says why it has none otherwise; {}
/// in it stands for the member's value.
inline const Effect always;
template <class T> Effect needs(T TrainOptions::*member, const std::string& why) {
  return [=](const TrainOptions& o) { return o.*member == T{} ? why : ""; };
}
template <class T> Effect not_with(T TrainOptions::*member, const std::string& why) {
  return [=](const TrainOptions& o) { return o.*member == T{} ? "" : why; };
}
Effect needs(std::string TrainOptions::*member, const std::vector<std::string>& values,
             const std::string& why);
Effect needs_schedule_that(bool ScheduleFunction::*takes);
Effect both(const Effect& a, const Effect& b);
extern const Effect needs_drawn_images, needs_curve, needs_decay, needs_sgd, needs_pipeline,
    needs_schedule_name, needs_checkpoints, not_simulated, needs_training;

bool plans_memory(const TrainOptions& options);

/// What a flag of the run's length changes, and one that drains the pipeline.
Change by_length(const TrainOptions& options);
Change by_draining(const TrainOptions& options);

}  // namespace tandem::apps
