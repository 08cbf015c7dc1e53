#pragma once
#include <array>
#include <cstddef>

namespace tandem::apps {

/// A way to train that the paper compares.
struct DualPipeScheme {
  const char* title;     ///< where networks learn: "SpecTrain"
  const char* timed_as;  ///< in figures of throughput: "DualPipe"; empty: it is in none
  const char* schedule;  ///< "spectrain"; "plain": data parallelism, which computes what one device computes
  bool is_pipeline;
  double paper_points;  ///< Table 1: highest accuracy over that of Data P., mean of the networks, in points

  /// Returns the stages of a run that learns as the scheme does on so many devices.
  int stages(int devices) const { return is_pipeline ? devices : 1; }
};

/// All schemes, in the order of the paper's figures. The constants are their places in it.
inline constexpr std::array kDualPipeSchemes{
    DualPipeScheme{"Data P.", "Data P.", "plain", false, 0},
    DualPipeScheme{"Vanilla DualPipe", "", "dualpipe", true, -2.06},
    DualPipeScheme{"PipeDream", "PipeDream", "pipedream", true, -1.74},
    DualPipeScheme{"SpecTrain", "DualPipe", "spectrain", true, 0.12},
};
inline constexpr std::size_t kData = 0, kVanilla = 1, kPipeDream = 2, kSpecTrain = 3;

/// The schemes whose throughput the paper gives, and the pipelines among them: places in kDualPipeSchemes.
inline constexpr std::array kTimedSchemes{kData, kPipeDream, kSpecTrain};
inline constexpr std::array kTimedPipelines{kPipeDream, kSpecTrain};

}  // namespace tandem::apps
