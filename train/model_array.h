#pragma once
#include <functional>
#include <vector>

#include <tandem/datasets/dataset.h>
#include <tandem/nn/module.h>
#include <tandem/plan/optimizer.h>
#include <tandem/train/lr_schedule.h>
#include <tandem/train/objective.h>

namespace tandem {

/// The length of a run, in batches.
struct RunLength {
  std::int64_t per_epoch = 0, total = 0;
};

/// A model of a ModelArray: what a run of this model alone would be given.
struct ArrayModel {
  nn::Module* module = nullptr;  ///< must outlive the training
  ModelOptions options{};
  Objective objective = classification();
  double lr = 0.1;
  std::function<LrSchedule(const RunLength&)> lr_schedule{};  ///< multiplies `lr`; empty: it is constant
  std::uint64_t seed = 0;                                     ///< of what it draws (dropout)
  /// Instead of the Trainer's; of the same type, size and labels. If one model has data of its own, batches
  /// take memory for each.
  DatasetPtr data{};
};

/// Models of one structure, to train side by side. They can differ in what ArrayModel says, in their dropout
/// rates, and in other attributes of their modules that change no type; each learns bit for bit what it would
/// learn alone with the same number of threads.
using ModelArray = std::vector<ArrayModel>;

}  // namespace tandem
