#pragma once
#include <tandem/core/schedule/program.h>

namespace tandem::bench {
using namespace engine;

/// The training step of a residual network as a schedule: convolution, batch norm, ReLU and a skip over every
/// two layers, their derivatives, updates with momentum, all-reduces of eight layers' gradients beside the
/// backward. On one stage every fourth activation is parked on the host; on several it is DualPipe, F and B
/// on two lanes each. About 11.5 steps a layer.
Program training_step(int layers, int stages = 1);

}  // namespace tandem::bench
