#pragma once
#include <string>

namespace tandem::engine {

/// Returns the processor's model and the number of cores of this machine, as "AMD EPYC 7763, 2 cores": times
/// that were measured on one machine are not those of another.
std::string machine_name();

}  // namespace tandem::engine
