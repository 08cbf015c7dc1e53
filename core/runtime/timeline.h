#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Returns the seconds of a clock that does not jump and that all processes of a machine share.
double steady_seconds();

/// One execution of one instruction, in seconds from the start of a simulation, or from the origin of a
/// Session.
struct Span {
  int rank = 0;
  LaneId lane = -1;
  InstructionId instruction = -1;
  std::int64_t unit = 0;   ///< from 0 in each run
  std::int64_t batch = 0;  ///< its number in the training, as given to Session::run
  double begin = 0, end = 0;
  int threads = 1;  ///< worker threads of a collective
  double met = 0;   ///< of a collective: when all ends had called; before, it waited for another rank
};

/// A record of what ran when. Measurements (CpuBackend) and predictions (SimBackend) have the same type, so
/// that subtraction compares them.
struct Timeline {
  IdVector<LaneId, std::string> lane_names;
  IdVector<InstructionId, std::string> instruction_names;
  IdVector<InstructionId, std::string>
      categories;  ///< per instruction: forward, backward, update, collective, …
  std::vector<Span> spans;
  std::int64_t dropped = 0;  ///< executions that were not measured for lack of room
  IdVector<InstructionId, std::int64_t>
      live;  ///< per instruction: bytes of state, and of work that is live while it runs
  IdVector<InstructionId, std::int64_t> planned;  ///< per instruction: its device's `planned_peak`
  /// A read of trained weights: for batch b of a run it reads their version max(0, b + shift).
  struct WeightRead {
    int shift = 0;
    int lag = 0;  ///< of the instruction
  };
  IdVector<InstructionId, std::optional<WeightRead>> weight_reads;  ///< per instruction: the oldest, if any

  /// Returns the seconds from the first begin to the last end.
  double seconds() const;
  /// Returns the seconds during which the lane is busy.
  double busy(LaneId lane) const;
};

/// Returns a Timeline with the names of a Program and no spans.
Timeline empty_timeline(const Program& program);

/// Chrome/Perfetto JSON (ui.perfetto.dev): a process per rank, a track per lane, counters for live and
/// planned bytes.
std::string to_perfetto(const Timeline& timeline);

/// Draws the timeline as text, one row per lane: a digit (b mod 10) for a forward of batch b, a letter for a
/// backward, * update, = all-reduce, > send, < receive, o copy out, i copy in, - timer, . idle; of memory
/// plans also + for a forward computed again, and _ for a wait. Each of `columns` cells shows what ran
/// longest in it.
std::string to_text(const Timeline& timeline, int columns);

}  // namespace tandem::engine
