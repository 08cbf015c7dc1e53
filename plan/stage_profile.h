#pragma once
#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// What one batch costs on one stage of a pipeline, without the stage's weights.
struct StageCost {
  double forward_ms = 0, backward_ms = 0;  ///< alone on the device; above 0
  double activation_bytes = 0;             ///< that cross to the next stage; gradients come back as large
  double weight_bytes = 0;
  /// Activations that it keeps from F to B. Missing: as many as cross.
  std::optional<double> resident_bytes{};
  double update_ms = 0;  ///< after the last micro-batch's B
  /// Devices that have the stage, and share its work: see `stage_program`.
  int replicas = 1;

  double total_ms() const { return forward_ms + backward_ms + update_ms; }
};

/// The link between two neighboring devices. A transfer of n bytes takes latency_ms + n / bytes_per_ms.
struct StageLink {
  double bytes_per_ms = 0;  ///< 0: no limit
  double latency_ms = 0;
  bool duplex = true;  ///< each direction has the whole rate; otherwise transfers that meet share it
};

/// One device that trains the whole network, and N devices that each train it on a part of the batch.
struct UncutCost {
  double single_ms = 0;  ///< one device, one batch
  /// N devices compute for this factor · single_ms / N. Missing: it was not measured, and counts as 1.
  std::optional<double> data_compute_factor{};
  double sync_bytes = 0;  ///< then they reduce so many bytes on a ring
};

/// A pipeline without its weights: all that a simulation needs.
struct StageProfile {
  std::vector<StageCost> stages{};
  StageLink link{};
  /// ρ: a forward and a backward that begin together take max(F, B, ρ(F + B)).
  double corun = 1;
  std::optional<UncutCost> uncut{};

  double batch_ms() const;  ///< of one batch through all stages and back, without transfers
  int devices() const;      ///< of all stages, if each has devices of its own
};

/// Returns the profile as JSON, as `stage_profile_of` reads it.
std::string to_json(const StageProfile& profile);
/// Returns the profile that a JSON text describes (docs/pipelines.md). Throws Error that begins with `what`,
/// and says where it is malformed.
StageProfile stage_profile_of(const std::string& what, const std::string& text);
/// Reads a profile from a file. Throws Error naming the file, and saying where it is malformed.
StageProfile read_stage_profile(const std::string& file);

}  // namespace tandem
