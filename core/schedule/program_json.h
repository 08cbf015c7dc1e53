#pragma once
#include <string>

#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Reads an unplanned Program, written by hand or by `to_json`. It needs no ops and no weights. `planned`
/// derives its slots, waits and addresses.
///
///     {"devices": 1, "corun": 1.0,
///      "lanes":  [{"device": 0, "kind": "compute", "index": 0}, ...],
///      "values": {"a": 1024, ...},                 bytes; values not listed have 64
///                 "g1": {"bytes": 64, "block": "group", "offset": 64}    part of a block
///      "blocks": {"group": {"bytes": 128, "arena": "host", "slots": 2}, ...}   arena: work by default;
///                                                  slots: the minimum
///      "states": {"w": {"device": 0, "bytes": 4096}, ...},
///      "instructions":  [{"name": "F", "lane": 0, "lag": 0, "seconds": 1.5,
///                  "reads": ["a", "w@2"],          state by age: w@1 is what the last batch assigned
///                  "writes": ["b", "w"],           writing a state assigns it
///                  "in_place": false,              may overwrite what it reads
///                  "channel": "x",                 the ends of a transfer or collective
///                  "own_rate": 1, "others_rate": 1,
///                  "after": [{"instruction": "G", "back": 1}]}, ...]}    waits in addition to those for data
///
/// `instructions` is the list order. A value alone in its block need not name it. Throws Error naming the
/// entry: unknown kind, lane, instruction or key, a key given twice, a value of another type or out of range
/// (waits.h has the limits), a value that no instruction makes, a cycle.
Program program_from_json(const std::string& text);

/// Writes the whole Program, planned or not, in the same format, including what was derived ("waits",
/// "slots", "offsets"). Reading that gives the unplanned Program, without ops; planning it gives the same
/// Program.
std::string to_json(const Program& program);

}  // namespace tandem::engine
