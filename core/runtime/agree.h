#pragma once
#include <cstdint>
#include <string>

#include <tandem/core/runtime/comm.h>

namespace tandem::engine {

/// To be called by every rank: throws Error on all of them where `mine` is not everywhere the same, "rank 2:
/// the ranks disagree on <what>: rank 1 has another than rank 0; …". Uses `channel` between rank 0 and the
/// others.
void agree(Comm& comm, std::uint64_t mine, const std::string& what, std::uint64_t channel);

}  // namespace tandem::engine
