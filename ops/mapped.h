#pragma once
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/ops/apply.h>

namespace tandem::engine {

/// An op run once per model. Every mapped input and every output has a leading model axis; the kernel runs
/// the inner op's kernel model by model, so each model's result is bit-identical to a separate run. This is
/// the vmap rule of ops that gain nothing from a joint kernel, and of those that differ from model to model.
class MappedOp final : public Op {
 public:
  MappedOp(OpPtr inner, std::vector<bool> mapped, std::int64_t models);
  /// The same with an op per model, which differ in attributes that change no type.
  MappedOp(std::vector<OpPtr> each, std::vector<bool> mapped, std::int64_t models);
  std::string_view name() const override { return "mapped"; }
  std::string label() const override { return inner->label(); }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override;
  std::vector<Alias> may_alias(TypesView inputs) const override;
  LaneKind lane() const override { return inner->lane(); }
  Precision precision() const override { return inner->precision(); }

  /// Returns the types of one model's inputs.
  Types inner_types(TypesView inputs) const;

  bool is_varied() const { return inners.size() > 1; }

  const std::vector<OpPtr> inners;  ///< one for all models, or one per model
  const OpPtr inner = inners[0];
  const std::vector<bool> mapped;
  const std::int64_t models;
};

/// A value of a graph that is being replayed: the Tensor that replaces it, and whether that Tensor has the
/// model axis.
struct Replayed {
  Tensor tensor;
  bool mapped = false;
};

/// Applies the nodes of `graph` in order: by the vmap rule if an input is mapped, unchanged otherwise. On
/// entry `values` holds the replacements of the graph's arguments; every node adds those of its outputs.
void replay_mapped(const Graph& graph, std::int64_t models, std::unordered_map<ValueId, Replayed>& values);
/// Applies one node in the same way; `force` applies the vmap rule even if no input is mapped.
void replay_mapped(const Node& node, std::int64_t models, bool force,
                   std::unordered_map<ValueId, Replayed>& values);

/// What one model's op is replaced by: `write` applies ops to one model's arguments, whose types are `types`,
/// and returns results. It is called for each op that differs; the nodes that it adds are applied to all
/// models, of which `inputs` are the arguments. A result that `write` leaves undefined stays so.
Tensors replay_for_each(const MappedOp& op, const Tensors& inputs, const std::vector<bool>& mapped,
                        const std::function<Tensors(const Op& inner, const Tensors& arguments)>& write);

/// Makes a kernel that runs the inner op's kernel model by model.
std::unique_ptr<class Kernel> make_mapped(const struct KernelSpec& spec);

}  // namespace tandem::engine
