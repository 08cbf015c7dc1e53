#pragma once
#include <map>
#include <string>

#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Seconds that instructions take alone on this machine, by signature (op, attributes, types) and team size.
/// What a simulation costs its compute and copy instructions with, those that the host fills or reads among
/// them; a transfer between stages costs a copy in memory, at least.
class Profile {
 public:
  /// Measures the Program in a trial run (trial_run.h): instructions of one signature cost their mean.
  /// `state` by path, as for Session::load.
  void measure(const Program& program, const KernelTable& kernels, Host& host, const StateDict& state);
  /// Throws Error naming the op when it was not measured.
  double seconds(const Instruction& instruction, int threads) const;

  /// JSON: {"<threads> <signature>": seconds, …}. Throw Error naming the file.
  static Profile read(const std::string& file);
  void write(const std::string& file) const;

 private:
  std::map<std::string, double> seconds_;
};

/// The Program with costs from a profile. A transfer costs what it costs already (by the strategy's link)
/// where that is more than was measured; all-reduces keep what they cost.
Program with_costs(Program program, const Profile& profile);

}  // namespace tandem::engine
