#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/graph/tensor.h>

#include "fenced.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;

/// How the elements of an input are drawn.
enum class Fill : std::uint8_t {
  uniform,   ///< independent, in [low, high]
  whole,     ///< whole numbers: many are alike (comparisons, ties)
  distinct,  ///< shuffled equal steps over [low, high]: no two are equal, nor equal in two inputs (max,
             ///< argmax)
};

/// One input of a case. f32 stands for "the precision under test": it becomes f64 when gradients are compared
/// with finite differences, and bf16 when kernels are checked in bf16. Integer inputs are drawn from low …
/// high, both included.
struct InputSpec {
  TensorType type;
  double low = -1;
  double high = 1;
  double gap = 0;  ///< elements keep |x| ≥ gap, away from a kink at zero
  Fill fill = Fill::uniform;
  bool differentiable = true;  ///< a floating input with false gets no gradient
  bool wide = false;           ///< f32 where others are bf16: a norm's parameters and statistics
};
InputSpec f32(Shape shape, double low = -1, double high = 1, double gap = 0);
InputSpec f32_distinct(Shape shape, double low = -1, double high = 1);
InputSpec f32_whole(Shape shape, double low, double high);
/// Stays f32 when others are bf16.
InputSpec f32_wide(Shape shape, double low = -1, double high = 1);
InputSpec i32(Shape shape, double low, double high);
InputSpec i64(Shape shape, double low, double high);
/// Zeros and ones.
InputSpec b8(Shape shape);

/// One test case of an op. op_case_checks.cpp uses it for every check: fast kernels against the reference,
/// gradients against finite differences, vmap against a loop over models, repeatability, bytes outside the
/// outputs, in-place aliasing.
struct OpCase {
  std::string name;  ///< "relu_3x5": unique; letters, digits and underscores
  std::vector<InputSpec> inputs;
  /// Calls the op by its public functions, perhaps several ops. Runs inside a trace.
  std::function<Tensors(const Tensors&)> apply;
  bool exact = false;                  ///< the CPU kernels equal the f32 reference bit for bit
  bool any_team = false;               ///< the same bits for every team size
  /// A result can be a small difference of inner values of this size. So cross entropy is log(sum) − logit: if
  /// the label's probability is near 1, no rounding of an argument moves it as far as that of the sum near 1.
  double inner_values = 0;
  /// Absolute: one step of a 16-bit dtype that results are cast to, since an element near the middle of a step
  /// can be rounded to either end.
  double narrow_step = 0;
  std::string no_gradient{};           ///< why the op has no derivative; empty if it has one
  std::string no_finite_difference{};  ///< why the derivative is not that of the values (rounding)
  std::string more_nan{};              ///< why infinities may become NaN here but not in the reference
  std::string no_vmap{};               ///< why there is no vmap rule
  std::string no_bf16{};               ///< words of the Error that refuses bf16; empty if bf16 is accepted
  std::string no_bf16_in_turn{};       ///< why results of several ops in bf16 are not close to those in f64
  std::shared_ptr<const OpCase> derivative_of{};  ///< the case whose derivative this one is
};
using OpCases = std::vector<OpCase>;
std::ostream& operator<<(std::ostream& out, const OpCase& c);

/// "3x5x1"; "0d" for a scalar.
std::string shape_name(const Shape& shape);

/// The case of a case's derivative: gradients as functions of the inputs and of the outputs' gradients.
/// Checking it checks second derivatives.
OpCase derivative_of(const OpCase& c);

/// The cases of every family. A new family is declared here and listed in op_cases_test.cpp.
OpCases pointwise_cases();
OpCases reduce_cases();
OpCases shape_cases();
OpCases attention_cases();
OpCases lstm_cases();
OpCases loss_cases();
OpCases random_cases();
OpCases update_cases();
OpCases matmul_cases();
OpCases conv_cases();
OpCases pool_cases();
OpCases norm_cases();

/// Random contents of input number `index` of `inputs`.
Tensor draw(const InputSpec& spec, std::size_t index, std::size_t inputs, std::mt19937_64& rng);

/// A case as a graph: its forward nodes and, if it has a derivative, its backward nodes.
struct TracedCase {
  Graph graph;
  std::vector<ValueId> inputs, cotangents;  ///< arguments; a cotangent is the gradient of a floating output
  std::vector<ValueId> outputs,
      gradients;  ///< gradients of the differentiable inputs, −1 if there is none
};
/// Traces `c` with floating f32 inputs as `precision`.
TracedCase trace_case(const OpCase& c, DType precision, bool gradients);

/// Gradients of `inputs`, given those of `outputs`. Applies the derivative rules of the current trace's nodes
/// from `first` on, in reverse order; adds the gradients of a fan-in in reverse node order.
Tensors differentiate_here(NodeId first, const Tensors& inputs, const Tensors& outputs, const Tensors& grads);

struct RunOptions {
  const KernelTable& kernels;
  int threads = 2;
  unsigned char poison = 0xff;  ///< the contents of outputs and workspaces before
  bool check_in_place = false;  ///< repeat each node in place, as its may_alias allows, and compare
};
using Contents = std::map<ValueId, std::vector<std::byte>>;
/// Runs a graph node by node in fenced buffers. Fails the test if a kernel writes outside its outputs and
/// workspace, changes an input, or gives another result in place. Returns the bytes of every value.
Contents run_graph(const Graph& graph, const std::map<ValueId, Tensor>& arguments, const RunOptions& options);

/// The elements as double.
std::vector<double> to_doubles(DType dtype, const std::vector<std::byte>& bytes);
/// √Σx² of the finite x.
double norm(const std::vector<double>& values);
/// ‖a − b‖ without equal infinities and pairs of NaN; infinite if only one of two elements is NaN.
double difference(const std::vector<double>& a, const std::vector<double>& b);
/// ‖a − b‖ / max(‖b‖, tiny).
double relative_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tandem::testing
