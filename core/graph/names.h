#pragma once

namespace tandem {

// The inputs and results that training knows by name.

inline constexpr const char* kDataInput = "data";         ///< samples (batch, …)
inline constexpr const char* kLabelsInput = "labels";     ///< i32 (batch,), or (batch, labels per sample)
inline constexpr const char* kWeightsInput = "weights";   ///< f32, one per label, if a sample has several
inline constexpr const char* kLearningRateInput = "lr";   ///< f32 or f64, one per model
inline constexpr const char* kActiveInput = "active";     ///< b8, one per model: does it still train?
inline constexpr const char* kSeedInput = "seed";         ///< i64, one per model: what dropout draws from
inline constexpr const char* kLossResult = "loss";        ///< the mean over the samples of a batch
inline constexpr const char* kCorrectResult = "correct";  ///< i32: how many samples are right
inline constexpr const char* kNonFiniteResult = "non_finite";  ///< 0 if the outputs are finite

/// f64: how far predicted and old weights are from the actual ones (plan/measure_prediction.h)
inline constexpr const char* kPredictionResult = "prediction";

/// b8, one per model if there are several: did the batch update? Only with rules that skip (GradientRules).
inline constexpr const char* kUpdatedResult = "updated";

}  // namespace tandem
