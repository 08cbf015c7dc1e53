#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/names.h>
#include <tandem/core/graph/scope.h>
#include <tandem/core/graph/tensor.h>
#include <tandem/core/graph/tensor_impl.h>

namespace tandem::engine {

/// While a Trace lives, ops applied on this thread become nodes of `graph`. Traces nest; the inner
/// one is current. Each op takes the module path of the Scopes around it, or `set_tag`'s tag.
class Trace {
 public:
  explicit Trace(Graph& graph);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  /// Returns the Trace that records on this thread, or null if there is none.
  static Trace* active();
  /// Returns the same Trace. Throws Error if there is none.
  static Trace* current();

  Graph& graph() { return graph_; }
  /// The Tensor that names an existing value.
  Tensor tensor(ValueId id);
  Tensors tensors(const std::vector<ValueId>& ids);
  /// Returns the value that a Tensor names in this graph. An eager Tensor with a state becomes
  /// `read(state, 1)` (one read per state), or, detached, what this trace assigned to the state; any other
  /// eager Tensor is copied in as a constant. Throws Error if that one requires a gradient.
  ValueId value(const Tensor& tensor);

  /// Data that the host supplies per batch. The same name gives the same Tensor. `per_model` inputs (learning
  /// rates, seeds) become one value per model under vmap.
  Tensor input(const std::string& name, TensorType type, bool per_model = false);
  /// Delivers `tensor` to the host under `name`, once per batch.
  void result(const std::string& name, const Tensor& tensor);
  /// Returns what batch b − age assigned to the state.
  Tensor read(StateId state, int age = 1);
  /// Sets the state's value from here on. The last value that a batch assigns is the next batch's.
  void assign(StateId state, const Tensor& tensor);

  Tensors apply(OpPtr op, const Tensors& inputs);
  /// The Tensors that the trace uses as states, by path.
  const StateDict& states() const { return states_; }

  /// The tag given to nodes from here on. Without one, tags come from the Scopes.
  void set_tag(const Tag& tag) { tag_ = tag; }

 private:
  Tag next_tag();
  Graph& graph_;
  Trace* outer_;
  bool outer_no_grad_;
  std::uint64_t number_;  // unique, from 1; nested Traces on one graph share it, and so their Tensors
  std::optional<Tag> tag_;
  std::unordered_map<std::string, ValueId> reads_;
  std::unordered_map<StateId, ValueId> assigned_;
  StateDict states_;  // the Tensors that the trace uses as states
  std::unordered_map<std::string, ValueId> inputs_;
  std::unordered_set<std::string> results_;
  std::unordered_map<std::string, int> calls_;
};

}  // namespace tandem::engine
