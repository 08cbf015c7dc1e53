#pragma once
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/model_range.h>
#include <tandem/ops/apply.h>

namespace tandem::engine {

/// An op that is another for each model, in attributes that change no type: dropout with the probability 0.1
/// in one model and 0.2 in the next. It stands in the graph of several models until `vmap` puts them side by
/// side, where it becomes a MappedOp, or until `of_models` takes one out.
class VariedOp final : public Op {
 public:
  /// `ops` has one op per model. Throws Error if their names differ.
  explicit VariedOp(std::vector<OpPtr> ops);
  std::string_view name() const override { return "varied"; }
  std::string label() const override { return ops[0]->label(); }
  std::string attributes() const override;
  /// Throws Error if the models' outputs have different types.
  Types infer(TypesView inputs) const override;
  Tensors vjp(const VjpArgs& args) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Work cost(TypesView inputs, TypesView outputs) const override { return ops[0]->cost(inputs, outputs); }
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
  Precision precision() const override { return ops[0]->precision(); }
  bool random() const override { return ops[0]->random(); }

  const std::vector<OpPtr> ops;
};

/// Returns whether two ops compute the same.
bool is_same(const Op& a, const Op& b);
/// Returns whether all ops compute the same.
bool are_same(const std::vector<OpPtr>& ops);

/// Returns the op if all are the same, or else a VariedOp.
OpPtr together(std::vector<OpPtr> ops);
/// Returns what `together` makes of the ops of a node in the graphs of all models. Throws Error as `unify`.
OpPtr unified_op(const std::vector<const Graph*>& models, NodeId n);

/// Puts the graphs of models of one structure into one: nodes whose attributes differ become VariedOps.
/// Throws Error naming the first module in which two models differ in more than that.
Graph unify(const std::vector<const Graph*>& models);
Graph unify(const std::vector<Graph>& models);

/// Returns the graph of some of the models of a unified graph; of one model, it has no VariedOp.
Graph of_models(const Graph& unified, const ModelRange& models);

/// Applies one op per model to inputs of which all that are `mapped` have a leading axis of models.
Tensors apply_to_each(const std::vector<OpPtr>& ops, const VmapArgs& args);

}  // namespace tandem::engine
