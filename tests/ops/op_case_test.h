#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;

/// Instantiated in op_cases_test.cpp with every family's cases.
class OpCaseTest : public ::testing::TestWithParam<OpCase> {};

/// A traced case replayed by the batching rules.
struct BatchedCase {
  Graph graph;
  std::map<ValueId, std::pair<ValueId, bool>>
      values;  ///< of the plain graph: the value here, and whether batched
  std::map<ValueId, std::pair<ValueId, bool>> arguments;
};
/// Batches the inputs that `mask` names and, always, the cotangents.
BatchedCase batch_case(const TracedCase& t, const std::vector<bool>& mask, std::int64_t models);
/// Arguments of a batched case from those of each model.
std::map<ValueId, Tensor> stack_arguments(const BatchedCase& batched,
                                          const std::vector<std::map<ValueId, Tensor>>& models);

/// Which inputs to batch: every non-empty choice of up to three inputs; of more, each alone, all but each,
/// and all.
std::vector<std::vector<bool>> batching_masks(std::size_t inputs);
std::string mask_name(const std::vector<bool>& mask);

/// The elements of `t`, rounded to another type of as many.
Tensor convert(const Tensor& t, const TensorType& type);
/// Random arguments of a traced case: inputs, then cotangents.
std::map<ValueId, Tensor> draw_arguments(const OpCase& c, const TracedCase& t, std::mt19937_64& rng);
/// The arguments of one trace of a case as those of another, in another precision.
std::map<ValueId, Tensor> as_types_of(const TracedCase& to, const TracedCase& from,
                                      const std::map<ValueId, Tensor>& args);
/// Outputs, then the gradients there are.
std::vector<ValueId> results_of(const TracedCase& t);
std::vector<double> values_of(const Graph& graph, const Contents& contents, ValueId v);

/// What f32 kernels may be off by: as much as kRoundings roundings of the result, and of every argument. No
/// kernel can know its arguments better than that; and where a result cancels (a sum of a thousand signed
/// terms, a mean taken off few values), the second part is all of the error, however small the result. Of
/// 190,000 results measured, right kernels gave 96 % with less than one such rounding, and all with less
/// than 20.
constexpr double kRoundings = 64;
constexpr double kRounding = 0x1p-24;  ///< relative, of f32
/// For each result, how far it moves when every argument in f64 is moved by one `rounding`, up or down at
/// random: ‖change‖, as root mean square over a few draws. `values`: what the results are without.
std::vector<double> effect_of_rounding(const TracedCase& t, const std::map<ValueId, Tensor>& arguments,
                                       const std::vector<std::vector<double>>& values, double rounding,
                                       std::mt19937_64& rng);

/// Whether some node's derivative rule throws NoRule, or gives nothing.
bool refuses_derivative(const Graph& original);

}  // namespace tandem::testing
