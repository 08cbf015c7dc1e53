#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::engine {

/// An op done once per model: inputs that are batched, and every output, carry a leading model axis,
/// and the kernel runs the inner op's kernel model by model. The batching rule of ops that gain nothing
/// from a joint kernel, and bitwise equal to separate models by construction.
class MappedOp final : public Op {
 public:
  MappedOp(OpPtr inner, std::vector<bool> batched, std::int64_t models);
  std::string_view name() const override { return "mapped"; }
  std::string label() const override { return inner->label(); }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<Alias> may_alias(std::span<const TensorType> inputs) const override;
  LaneKind lane() const override { return inner->lane(); }
  Precision precision() const override { return inner->precision(); }

  /// What one model sees of the inputs.
  Types inner_types(std::span<const TensorType> inputs) const;

  const OpPtr inner;
  const std::vector<bool> mapped;
  const std::int64_t models;
};

/// The batching rule "do it model by model".
Tensors map_over_models(OpPtr op, const VmapArgs& args);

/// A value of a graph being replayed: the Tensor that stands for it, and whether that carries the model axis.
struct Replayed {
  Tensor tensor;
  bool mapped = false;
};

/// Applies the nodes of `graph` in order, by their batching rules where an input is batched and as they
/// are elsewhere. `values` holds what stands for the graph's arguments, and receives the rest.
void replay_mapped(const Graph& graph, std::int64_t models, std::unordered_map<ValueId, Replayed>& values);
/// The same for one node; `force` batches it whatever its inputs are.
void replay_batched(const Node& node, std::int64_t models, bool force,
                    std::unordered_map<ValueId, Replayed>& values);

/// The inner op's kernel, model by model.
std::unique_ptr<class Kernel> make_mapped(const struct KernelSpec& spec);

}  // namespace tandem::engine
