#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/base/types.h>

namespace tandem {

class Tensor;
using Tensors = std::vector<Tensor>;

}  // namespace tandem

namespace tandem::engine {

/// The kind of queue that executes an op. An index tells the lanes of one kind apart: a number for compute
/// lanes, the peer for send and receive lanes.
enum class LaneKind : std::uint8_t { compute, collective, send, receive, copy_out, copy_in, timer };
std::string_view name_of(LaneKind kind);

/// Declares that an output may share the bytes of an input.
struct Alias {
  enum Kind : std::uint8_t {
    view,      ///< the output *is* the input under another type: never computed, always shared
    in_place,  ///< the kernel stays correct when output and input are the same bytes
  };
  int output;
  int input;
  Kind kind;
  bool operator==(const Alias&) const = default;
};

/// The cost of one execution, computed from shapes alone.
struct Work {
  double flops = 0;  ///< floating-point operations, a fused multiply-add counting two
  double bytes = 0;  ///< bytes read and written, each operand once
};

/// The arguments of a derivative rule: the node's own inputs and outputs, and the gradients of its outputs.
struct VjpArgs {
  const Tensors& inputs;
  const Tensors& outputs;
  const Tensors& grads;             ///< per output; an undefined Tensor means zero
  const std::vector<bool>& needed;  ///< per input; if not, the rule may return an undefined Tensor
  /// Per input, the gradient from later readers; undefined if there is none. A rule that can add to it in
  /// place takes the Tensor out (`take_sum`), and returns the sum. Null: no rule may.
  Tensors* sums = nullptr;
};
/// Takes the gradient of input `i` from later readers out of `args.sums`; undefined if there is none.
Tensor take_sum(const VjpArgs& args, std::size_t i);

/// The arguments of a vmap rule: input i has a leading axis of `models` models if `mapped[i]`.
struct VmapArgs {
  const Tensors& inputs;
  const std::vector<bool>& mapped;
  std::int64_t models;
};

/// How an op takes part in mixed precision (plan/mixed_precision.h).
enum class Precision : std::uint8_t {
  full,     ///< computed in f32, whatever comes in
  low,      ///< a product: takes and gives the narrow dtype
  follows,  ///< gives the dtype it is given; its arithmetic is f32 all the same
};

/// One operation: its attributes are the members of the subclass, and *all* its rules are here.
/// Rules are pure virtual, so none can be forgotten; a rule that cannot exist calls `no_rule(...)`. Kernels
/// are not part of an op: every backend has its own (kernel.h). Ops are immutable and shared.
class Op {
 public:
  virtual ~Op() = default;

  /// The family's name, the key of the kernel tables: "matmul".
  virtual std::string_view name() const = 0;
  /// The name that users know: "relu" rather than "pointwise".
  virtual std::string label() const { return std::string(name()); }
  /// Every attribute as text: "transpose_a=0 transpose_b=1". Ops of one name with equal texts are equal.
  virtual std::string attributes() const { return {}; }

  /// Output types. Throws Error on inputs that do not fit; the caller adds the module path.
  virtual Types infer(TypesView inputs) const = 0;
  /// Gradients with respect to each input, built from ops. An undefined Tensor means "none".
  virtual Tensors vjp(const VjpArgs& args) const = 0;
  /// The same operation for `models` models at once; every output carries the leading model axis.
  virtual Tensors vmap(const VmapArgs& args) const = 0;
  virtual Work cost(TypesView inputs, TypesView outputs) const = 0;
  virtual std::vector<Alias> may_alias(TypesView inputs) const = 0;

  /// How the op takes part in mixed precision.
  virtual Precision precision() const { return Precision::full; }
  virtual LaneKind lane() const { return LaneKind::compute; }
  /// The index of its lane among lanes of that kind: the peer device, for sends and receives. (The pipeline
  /// schedule chooses the lane of a computation: Tag::lane.)
  virtual int lane_index() const { return 0; }
  /// True if the op draws random numbers: its nodes get an rng_id.
  virtual bool random() const { return false; }
  /// True if the op works on its operands in place, output i on input i, one after another in memory, each
  /// padded to 64 bytes. Buffer assignment (memory/buffer_assignment.h) places them so.
  virtual bool joins_operands() const { return false; }
  /// True if its output lies in host memory.
  virtual bool makes_host_copy() const { return false; }
  /// True if, on its device, all instructions listed before the op end before it, and all listed after it
  /// begin after it.
  virtual bool is_barrier() const { return false; }
};
using OpPtr = std::shared_ptr<const Op>;

/// An op that reads and writes each operand once, and whose outputs have memory of their own.
class StreamingOp : public Op {
 public:
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView) const override { return {}; }

 protected:
  /// Operations per element of the first input.
  virtual double flops_per_element() const { return 0; }
};

/// Declares that a rule does not exist: throws NoRule naming the op, the rule and why.
[[noreturn]] void no_rule(const Op& op, std::string_view rule, std::string_view why);

/// Throws Error unless an op has `count` inputs.
void require_inputs(TypesView inputs, std::size_t count);
/// Throws Error, which calls an input `what`, unless it has the type that is expected.
void require_type(std::string_view what, const TensorType& actual, const TensorType& expected);
/// Returns the type of an op's only input. Throws Error unless it has one input.
const TensorType& only_input(TypesView inputs);

/// Returns the Work of an op that reads or writes each operand once, with `flops_per_output` per element.
Work streaming_work(TypesView inputs, TypesView outputs, double flops_per_output);

/// Returns everything that a kernel's time depends on, which is the key in profiles:
/// "matmul{transpose_b=1}(f32[8, 4], f32[16, 4])".
std::string signature(const Op& op, TypesView inputs);

}  // namespace tandem::engine
