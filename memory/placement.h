#pragma once
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Gives every block its lifetime, its release point and its address.
///
/// Blocks with the same slot count lie in one region with one stride, so that they can share bytes slot by
/// slot. Two of them do if their lifetimes in the cyclic list order are disjoint *and* lanes and waits
/// already order all uses of each before the other's first write, both ways round the cycle. State has its
/// own addresses: version 0 of every state first, the model's by path and then the optimizer's, so that
/// training, evaluation and any other Program of one model find it in the same place.
Program placed(Program program);

/// Completes an unplanned Program (instructions, lanes, lags, members) so that it can run: checks it and
/// adds slots, waits and addresses. Does not verify it.
Program planned(Program unplanned);

}  // namespace tandem::engine
