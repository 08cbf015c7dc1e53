#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tandem/core/base/types.h>

namespace tandem {

class Tensor;
using Tensors = std::vector<Tensor>;

}  // namespace tandem

namespace tandem::engine {

/// The kind of queue an op is executed on. Lanes of one kind are told apart by an index: compute
/// lanes by number, send and receive lanes by peer.
enum class LaneKind : std::uint8_t { compute, collective, send, receive, copy_out, copy_in };
std::string_view name_of(LaneKind kind);

/// An output that may share its input's bytes.
struct Alias {
  enum Kind : std::uint8_t {
    view,      ///< the output *is* the input under another type: never computed, always shared
    in_place,  ///< the kernel stays correct when output and input are the same bytes
  };
  int output;
  int input;
  Kind kind;
};

/// What one execution costs, from shapes alone.
struct Work {
  double flops = 0;  ///< floating-point operations, a fused multiply-add counting two
  double bytes = 0;  ///< bytes read and written, each operand once
};

/// What a derivative rule sees: the node's own inputs and outputs, and the gradients of its outputs.
struct VjpArgs {
  const Tensors& inputs;
  const Tensors& outputs;
  const Tensors& grads;             ///< per output; an undefined Tensor means zero
  const std::vector<bool>& needed;  ///< per input; a rule may return undefined where not needed
};

/// What a batching rule sees: inputs with a leading model axis of `models` where `batched` says so.
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
/// Rules are pure virtual, so none can be forgotten; one that cannot exist says so by calling
/// `no_rule(...)`. Kernels live apart, per backend (kernel.h). Ops are immutable and shared.
class Op {
 public:
  virtual ~Op() = default;

  /// The family's name, the key of the kernel tables: "matmul".
  virtual std::string_view name() const = 0;
  /// What users call it: "relu" rather than "pointwise".
  virtual std::string label() const { return std::string(name()); }
  /// Every attribute as text: "transpose_a=0 transpose_b=1". Equal text, equal op.
  virtual std::string attributes() const { return {}; }

  /// Output types. Throws Error on inputs that do not fit; the caller adds the module path.
  virtual Types infer(std::span<const TensorType> inputs) const = 0;
  /// Gradients with respect to each input, built from ops. An undefined Tensor means "none".
  virtual Tensors vjp(const VjpArgs& args) const = 0;
  /// The same operation for `models` models at once; every output carries the leading model axis.
  virtual Tensors vmap(const VmapArgs& args) const = 0;
  virtual Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const = 0;
  virtual std::vector<Alias> may_alias(std::span<const TensorType> inputs) const = 0;

  /// What becomes of the op in mixed precision.
  virtual Precision precision() const { return Precision::full; }
  virtual LaneKind lane() const { return LaneKind::compute; }
  /// Which of several lanes of that kind: the peer stage, for sends and receives. (A computation's lane is
  /// the schedule's choice: Tag::lane.)
  virtual int lane_index() const { return 0; }
  /// True where the op draws random numbers: its nodes get an rng_id.
  virtual bool random() const { return false; }
  /// True where it needs its operands one after another in memory, and works on them there: buffer assignment
  /// (memory/buffer_assignment.h) places them so.
  virtual bool joins_operands() const { return false; }
  /// True where it parts the list: on its device, what is listed before it from what is listed after it.
  virtual bool is_barrier() const { return false; }
};
using OpPtr = std::shared_ptr<const Op>;

/// Declares that a rule does not exist: throws NoRule naming the op, the rule and why.
[[noreturn]] void no_rule(const Op& op, std::string_view rule, std::string_view why);

/// Work of an op that streams its operands once: all bytes, `flops_per_output` per output element.
Work streaming_work(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                    double flops_per_output);

/// "matmul{transpose_b=1}(f32[8, 4], f32[16, 4])": what a kernel's time depends on. Keys profiles.
std::string signature(const Op& op, std::span<const TensorType> inputs);

}  // namespace tandem::engine
