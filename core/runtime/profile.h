#pragma once
#include <map>
#include <optional>
#include <string>

#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/schedule/program.h>

namespace tandem::engine {

/// Seconds that instructions take alone on a machine, by signature (op, attributes, types) and team size.
/// Simulations take the costs of compute and copy instructions from it, including those that the host fills
/// or reads. A transfer between stages costs at least a copy in memory.
class Profile {
 public:
  /// Measures the Program in a trial run (trial_run.h). `state` is by path, as for Session::load.
  void measure(const Program& program, const KernelTable& kernels, Host& host, const StateDict& state);
  /// Takes the seconds of each instruction of the Program. Instructions of one signature get their mean,
  /// which replaces that of earlier Programs.
  void take(const Program& program, const IdVector<InstructionId, double>& seconds);
  /// Takes what another profile has, which replaces what this one has of the same.
  void add(const Profile& other);
  /// Returns nothing if an instruction of this op and these types was not measured.
  std::optional<double> find(const Instruction& instruction, int threads) const;
  /// Throws Error naming the op if it was not measured.
  double seconds(const Instruction& instruction, int threads) const;

  /// The machine that was measured (machine_name()); empty if a file does not say.
  const std::string& machine() const { return machine_; }

  /// {"machine": "…", "<threads> <signature>": seconds, …}
  std::string to_json() const;
  /// Reads that. Throws Error that begins with `what`.
  static Profile parse(const std::string& what, const std::string& json);
  /// Read and write a file of that. Both throw Error naming the file.
  static Profile read(const std::string& file);
  void write(const std::string& file) const;

 private:
  std::string what_ = "the profile", machine_;
  std::map<std::string, double> seconds_;
};

/// Returns the Program with costs from a profile. A transfer or a copy keeps its cost (from the strategy's
/// link) if that is higher than measured; all-reduces keep their costs.
Program with_costs(Program program, const Profile& profile);

}  // namespace tandem::engine
