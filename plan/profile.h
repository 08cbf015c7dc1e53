#pragma once
#include <map>
#include <string>

#include <tandem/core/kernel.h>
#include <tandem/core/program.h>

namespace tandem {

/// Seconds that ops take alone on this machine, by signature (op, attributes, input types) and team size.
/// What a simulation costs its compute and copy steps with.
class Profile {
 public:
  /// Measures what the Program's compute and copy steps need and is not known yet: the median of a few runs
  /// of each kernel on memory of its own. Steps that wait for the host or for other ranks cost nothing.
  void measure(const Program& program, const KernelTable& kernels, int threads);
  /// Throws Error naming the op when it was not measured.
  double seconds(const Step& step, int threads) const;

  /// JSON: {"<threads> <signature>": seconds, …}. Throw Error naming the file.
  static Profile read(const std::string& file);
  void write(const std::string& file) const;

 private:
  std::map<std::string, double> seconds_;
};

/// The Program with the costs of compute and copy steps taken from a profile.
Program with_costs(Program program, const Profile& profile, int threads);

}  // namespace tandem
