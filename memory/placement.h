#pragma once
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Gives every block its lifetime, its release point and its address.
///
/// Blocks of one slot count lie in one region with one stride, so that they may share bytes slot by slot;
/// two of them do where their lifetimes in the cyclic list order are disjoint *and* lanes and waits
/// already order all uses of the one before the other's first write, both ways round the cycle. State has
/// addresses of its own: version 0 of every slot first, the model's by path and then the optimizer's, so that
/// training, evaluation and any other Program of one model find it in the same place.
Program placed(Program program);

/// From a schedule (instructions, lanes, lags, members) to a Program ready to run: checked, with slots, waits
/// and addresses. Not yet verified.
Program planned(Program schedule);

}  // namespace tandem::engine
