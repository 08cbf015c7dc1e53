#pragma once
#include "training_run.h"

namespace tandem::apps {

/// The whole of train_cifar. Call it once, first in main(); returns the exit status. If ranks are processes,
/// an error ends all of them, and this does not return. `adjust` changes what the Trainer is made with.
int train(int argc, char** argv, const TrainingRun::Adjust& adjust = {});

}  // namespace tandem::apps
