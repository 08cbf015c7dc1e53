#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "op_case.h"

namespace tandem::test {

/// Instantiated in op_cases_test.cpp with every family's cases.
class OpCaseTest : public testing::TestWithParam<OpCase> {};

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

/// Whether some node's derivative rule throws NoRule, or gives nothing.
bool refuses_derivative(const Graph& original);

}  // namespace tandem::test
