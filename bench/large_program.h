#pragma once
#include <tandem/core/schedule/program.h>

namespace tandem::bench {
using namespace engine;

/// Returns the training step of a residual network as an unplanned Program: convolution, batch norm, ReLU and
/// a skip over every two layers, their derivatives, updates with momentum, and all-reduces of eight layers'
/// gradients beside the backward pass. On one stage, every fourth activation is parked on the host. On
/// several, the schedule is DualPipe, with forward and backward on two lanes per stage. There are about 11.5
/// instructions per layer.
Program training_step(int layers, int stages = 1);

}  // namespace tandem::bench
