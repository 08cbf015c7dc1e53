#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "op_case.h"

namespace tandem::testing {
using namespace engine;

/// Instantiated in op_cases_test.cpp with the cases of every family.
class OpCaseTest : public ::testing::TestWithParam<OpCase> {};

/// A traced case after vmap.
struct VmappedCase {
  Graph graph;
  std::map<ValueId, std::pair<ValueId, bool>>
      values;  ///< per value of the plain graph: the value here, and whether it has a model axis
  std::map<ValueId, std::pair<ValueId, bool>> arguments;
};
/// Gives a model axis to the inputs in `mask` and, always, to the cotangents.
VmappedCase vmap_case(const TracedCase& t, const std::vector<bool>& mask, std::int64_t models);
/// Stacks the arguments of each model into those of a vmapped case.
std::map<ValueId, Tensor> stack_arguments(const VmappedCase& mapped,
                                          const std::vector<std::map<ValueId, Tensor>>& models);

/// The choices of inputs that get a model axis: for up to three inputs every non-empty choice; for more, each
/// alone, all but each, and all.
std::vector<std::vector<bool>> vmap_masks(std::size_t inputs);
std::string mask_name(const std::vector<bool>& mask);

/// The elements of `t`, rounded to another type with the same number of elements.
Tensor convert(const Tensor& t, const TensorType& type);
/// Random arguments of a traced case: inputs, then cotangents.
std::map<ValueId, Tensor> draw_arguments(const OpCase& c, const TracedCase& t, std::mt19937_64& rng);
/// Converts the arguments of one trace of a case to those of another trace in another precision.
std::map<ValueId, Tensor> as_types_of(const TracedCase& to, const TracedCase& from,
                                      const std::map<ValueId, Tensor>& args);
/// Outputs, then the gradients that exist.
std::vector<ValueId> results_of(const TracedCase& t);
std::vector<double> values_of(const Graph& graph, const Contents& contents, ValueId v);

/// The allowed error of f32 kernels: kRoundings roundings of the result and of every argument. No kernel can
/// know its arguments more exactly. If a result cancels (a sum of a thousand signed terms, a mean subtracted
/// from few values), the second part is all of the error, however small the result. Of 190,000 measured
/// results of correct kernels, 96 % were off by less than one such rounding, and all by less than 20.
constexpr double kRoundings = 64;
constexpr double kRounding = 0x1p-24;  ///< relative, of f32
/// For each result, how far it moves if every f64 argument moves by one `rounding`, up or down at random:
/// ‖change‖, as root mean square over six draws. `values` are the unmoved results.
std::vector<double> effect_of_rounding(const TracedCase& t, const std::map<ValueId, Tensor>& arguments,
                                       const std::vector<std::vector<double>>& values, double rounding,
                                       std::mt19937_64& rng);

/// Whether the derivative rule of some node throws NoRule or returns nothing.
bool refuses_derivative(const Graph& original);

}  // namespace tandem::testing
