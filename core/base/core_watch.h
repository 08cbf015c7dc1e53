#pragma once
#include <memory>
#include <vector>

#include <tandem/core/base/team.h>

namespace tandem {

/// Lets the threads of a team use cores well that other processes use, too. The threads of a team wait for
/// each other after each kernel. Where another process takes the core of one thread, the others soon sleep,
/// and the operating system still leaves that thread in the queue of its core for a time slice, some
/// milliseconds, although their cores are idle. A CoreWatch makes that thread and one that sleeps change
/// cores. Results do not depend on it: each thread computes the same part as without.
///
/// It has one thread per core with the lowest priority (SCHED_IDLE), which gets the core when it is idle, and
/// next to nothing of it beside others. It looks for a thread of the team that waits for another core: a
/// hundred times a second, and, for a tenth of a second after it found one, in turns of 0.1 ms with pauses of
/// 1 ms. For that time, each thread of the team is bound to one core; threads that it starts then inherit
/// this.
///
/// Does nothing unless the team and the calling thread's cores are two: more was never measured. Nor does it
/// if a control group limits the time on the cores (cores_by_quota), or while another CoreWatch exists in
/// this process; nor for a niceness above 0, with which a thread gets so little of a shared core that the
/// team is better off on the others, where the operating system puts it. Ends if all threads of the process
/// are bound from outside (taskset -ap).
class CoreWatch {
 public:
  /// Watches over these threads, which must outlive the object.
  explicit CoreWatch(const std::vector<TeamThread>& threads);
  /// The team's threads can run on all cores again, or soon can. The watching threads end by themselves, soon
  /// afterwards.
  ~CoreWatch();
  CoreWatch(const CoreWatch&) = delete;
  CoreWatch& operator=(const CoreWatch&) = delete;

 private:
  class Team;
  std::shared_ptr<Team> team_;  // null: does nothing
};

}  // namespace tandem
