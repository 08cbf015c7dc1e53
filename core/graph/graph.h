#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tandem/core/base/id.h>
#include <tandem/core/base/types.h>
#include <tandem/core/graph/op.h>
#include <tandem/core/graph/tag.h>

namespace tandem::engine {

using ValueId = Id<struct Value>;
using NodeId = Id<struct Node>;
using StateId = Id<struct State>;

/// An op applied to values, giving new values (single assignment). Nodes and values are named by id, and the
/// inputs of a node are always made before it.
struct Node {
  OpPtr op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Tag tag;
};

struct Value {
  TensorType type;
  NodeId producer = -1;
};

/// The beginning of every path of the optimizer's state. All other state belongs to the model.
inline constexpr std::string_view kOptimizerPath = "optimizer.";

/// State that persists between batches, named by path: "layer1.0.conv2.weight".
struct State {
  std::string path{};
  TensorType type{};
  bool trained = false;  ///< receives a gradient and an update
  int stage = 0;         ///< of a pipeline
  int device = 0;        ///< on which the stage lies
};

/// The tag of a new node that works for a state.
Tag tag_of(Phase phase, const State& state);

/// For each value, the nodes that read it, ascending.
using Readers = IdVector<ValueId, std::vector<NodeId>>;

/// Everything a training step does, as nodes: arithmetic, reads and assigns of state, inputs,
/// results, collectives, transfers and copies alike. A plain value; passes take one and return one.
class Graph {
 public:
  /// Appends a node; infers its output types. Throws Error naming path, op and shapes on mismatch.
  NodeId add(OpPtr op, std::vector<ValueId> inputs, Tag tag);
  StateId add_state(State state);
  /// Adds a value that no node makes: an argument of a graph that is evaluated by hand.
  ValueId add_value(TensorType type);

  const IdVector<NodeId, Node>& nodes() const { return nodes_; }
  const IdVector<ValueId, Value>& values() const { return values_; }
  const IdVector<StateId, State>& states() const { return states_; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  /// The node that makes a value; there must be one.
  const Node& producer(ValueId id) const { return node(value(id).producer); }
  const Value& value(ValueId id) const { return values_[id]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  Types types(std::span<const ValueId> ids) const;
  void set_tag(NodeId id, Tag tag) { nodes_[id].tag = std::move(tag); }
  /// For changes of anything but the path.
  State& state(StateId id) { return states_[id]; }
  const State& state(StateId id) const { return states_[id]; }
  /// Returns −1 if no state has that path.
  StateId find_state(const std::string& path) const;

  /// Returns the smallest channel above all channels in use.
  std::int64_t next_channel() const;
  Readers readers() const;

 private:
  IdVector<NodeId, Node> nodes_;
  IdVector<ValueId, Value> values_;
  IdVector<StateId, State> states_;
  std::unordered_map<std::string, StateId> state_ids_;  // by path
};

/// Returns the op, or the node's op, as a `T`, or null if it is of another class.
template <class T> const T* as(const Op& op) { return dynamic_cast<const T*>(&op); }
template <class T> const T* as(const Node& node) { return dynamic_cast<const T*>(node.op.get()); }

/// If the node's output *is* one of its inputs under another type (Alias::view), returns that input.
std::optional<ValueId> view_of(const Graph& graph, const Node& node);

/// Checks what every pass must preserve: ids in range, inputs before their readers, one producer
/// per value, types as `infer` gives them, states that exist. Throws Error.
void verify(const Graph& graph);

/// Returns a message with what it is about: "encoder.words: embedding(f32[5, 3], i32[2]): <message>".
std::string about(const Op& op, const Tag& tag, TypesView inputs, std::string_view message);

/// One line per node: "12 31 = matmul{...}(4,7) : f32[8, 16]  @layer1 forward stage 0 mb 0 lag 0".
std::string to_string(const Graph& graph);

}  // namespace tandem::engine
