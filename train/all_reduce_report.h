#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tandem/dist/all_reduce_policies.h>
#include <tandem/dist/all_reduce_profile.h>
#include <tandem/train/all_reduce_key.h>

namespace tandem {

/// What a run measured of one device's backward pass, and how it reduces gradients since.
struct DeviceAllReduces {
  AllReduceProfile profile;
  double error_of_fit = 0;  ///< median of |ln(measured / fitted)| over the all-reduces
  AllReducePlan plan{};
  std::vector<std::pair<std::string, double>> predicted{};  ///< backward_ms by policy; the chosen one first
  double measured_ms = 0;                                   ///< of backward with the plan
  double computed_ms = 0;                                   ///< of it, until the last gradient was computed
};

/// What `AllReduceTuning` found. Saved key and profiles replace the measurement of another run that has an
/// equal key.
struct AllReduceReport {
  AllReduceKey key{};
  std::vector<DeviceAllReduces> devices{};  ///< as AllReduceKey::layers
  std::vector<std::string> warnings{};
  std::string reason{};   ///< why this was planned when the run had a plan already, or empty
  bool is_saved = false;  ///< it was planned from a saved measurement
  /// The measured times contradict the model, or what it predicts. Often other programs kept the machine
  /// busy.
  bool is_doubtful = false;
  std::int64_t batches = 0;  ///< that were measured
};

/// Returns the file of a device's part: `file` for the first, then all-reduce-1.json for all-reduce.json.
std::string all_reduce_file(const std::string& file, std::size_t device);
/// Returns a device's part as JSON: a profile, as `read_all_reduce_profile` reads it, and what the run made
/// of it.
std::string to_json(const AllReduceReport& report, std::size_t device);
/// Returns whether a JSON file is such a profile, rather than a plan (plan/plan_file.h).
bool holds_all_reduces(const std::string& file);
/// Reads the report whose first device is in `file`: key and profiles, without the plans, which follow from
/// them. Throws Error naming the file, and saying what is wrong or missing.
AllReduceReport read_all_reduces(const std::string& file);

}  // namespace tandem
