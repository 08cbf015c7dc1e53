#pragma once
#include <map>
#include <string>

#include <tandem/core/host.h>
#include <tandem/core/kernel.h>
#include <tandem/core/program.h>
#include <tandem/core/tensor.h>

namespace tandem {

/// Seconds that steps take alone on this machine, by signature (op, attributes, types) and team size. What a
/// simulation costs its compute and copy steps with, those that the host fills or reads among them; a
/// transfer between stages costs a copy in memory, at least.
class Profile {
 public:
  /// Measures the Program in a trial run (trial_run.h): steps of one signature cost their mean. `state` by
  /// path, as for Session::load.
  void measure(const Program& program, const KernelTable& kernels, Host& host,
               const std::map<std::string, Tensor>& state);
  /// Throws Error naming the op when it was not measured.
  double seconds(const Step& step, int threads) const;

  /// JSON: {"<threads> <signature>": seconds, …}. Throw Error naming the file.
  static Profile read(const std::string& file);
  void write(const std::string& file) const;

 private:
  std::map<std::string, double> seconds_;
};

/// The Program with costs from a profile. A transfer costs what it costs already (by the strategy's link)
/// where that is more than was measured; all-reduces keep what they cost.
Program with_costs(Program program, const Profile& profile);

}  // namespace tandem
