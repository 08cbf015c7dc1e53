#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/model_range.h>
#include <tandem/core/graph/op.h>

namespace tandem::engine {

/// An op at which a graph begins or ends: no gradient passes through it.
class BoundaryOp : public Op {
 public:
  Tensors vjp(const VjpArgs& args) const override;
  Work cost(TypesView, TypesView) const override { return {}; }
  std::vector<Alias> may_alias(TypesView) const override { return {}; }
};

/// read(state, age): gives what batch b − age assigned to the state, or the state at the start of the run if
/// that batch precedes the run. It is never computed: its output *is* the state's memory; if it is of some
/// models, their part of it.
class ReadOp final : public BoundaryOp {
 public:
  ReadOp(StateId state, int age, TensorType type, ModelRange models = {})
      : state(state), age(age), type(std::move(type)), models(models) {}
  std::string_view name() const override { return "read"; }
  std::string attributes() const override;
  Types infer(TypesView) const override { return {type}; }
  Tensors vmap(const VmapArgs&) const override;

  const StateId state;
  const int age;
  const TensorType type;
  const ModelRange models;
};

/// assign(state, value): sets the state's contents, or those of some models, from this batch on. It is free
/// if the value can be placed in the state's memory, otherwise a copy.
class AssignOp final : public BoundaryOp {
 public:
  explicit AssignOp(StateId state, ModelRange models = {}) : state(state), models(models) {}
  std::string_view name() const override { return "assign"; }
  std::string attributes() const override;
  Types infer(TypesView inputs) const override;
  Tensors vmap(const VmapArgs&) const override;

  const StateId state;
  const ModelRange models;
};

/// Returns where the part of some models begins in a state that has a leading axis of models, in bytes.
std::int64_t offset_of(const ModelRange& models, const TensorType& state);
/// Returns whether a value is all of a state, or what some models have of it: with a leading axis of these
/// models, or of one model without.
bool is_part(const TensorType& value, const ModelRange& models, const TensorType& state);

/// Several batches, counted from batch b of a run that begins with batch 0: `count` batches from b + `first`
/// on, or from batch 0 on if that precedes the run. With `is_cut` those that precede the run are missing.
struct BatchRange {
  int first = 0, count = 1;
  bool is_cut = false;
  /// Returns the first of them, and one past the last.
  std::pair<std::int64_t, std::int64_t> of(std::int64_t batch) const;
};

/// Data that the host supplies per batch. `per_model` inputs (learning rates, seeds) get a leading
/// model axis under vmap; all models share the others. `models` says whose they are.
///
/// With `sum_of` the value is the sum of the input's values for several batches, in ascending order, in f64
/// before it is rounded: what updates by learning rates do together.
class InputOp final : public BoundaryOp {
 public:
  InputOp(std::string input, TensorType type, bool per_model, std::optional<BatchRange> sum_of = {},
          ModelRange models = {})
      : input(std::move(input)),
        type(std::move(type)),
        per_model(per_model),
        sum_of(sum_of),
        models(models) {}
  std::string_view name() const override { return "input"; }
  std::string attributes() const override;
  Types infer(TypesView) const override { return {type}; }
  Tensors vmap(const VmapArgs&) const override;
  Work cost(TypesView inputs, TypesView outputs) const override { return streaming_work(inputs, outputs, 0); }

  const std::string input;
  const TensorType type;
  const bool per_model;
  const std::optional<BatchRange> sum_of;
  const ModelRange models;
};

/// Delivers its input to the host, once per batch: of all models, or of some.
class ResultOp final : public BoundaryOp {
 public:
  explicit ResultOp(std::string result, ModelRange models = {}) : result(std::move(result)), models(models) {}
  std::string_view name() const override { return "result"; }
  std::string attributes() const override;
  Types infer(TypesView) const override { return {}; }
  Tensors vmap(const VmapArgs&) const override;

  const std::string result;
  const ModelRange models;
};

/// The value without its history: no gradient passes to the input. A Program never computes it, since
/// training_graph and evaluation_graph take it out.
class DetachOp final : public BoundaryOp {
 public:
  std::string_view name() const override { return "detach"; }
  Types infer(TypesView inputs) const override;
  Tensors vmap(const VmapArgs& args) const override;
  Precision precision() const override { return Precision::follows; }
};

/// A value with fixed contents.
class ConstantOp final : public BoundaryOp {
 public:
  ConstantOp(TensorType type, std::vector<std::byte> bytes)
      : type(std::move(type)), bytes(std::move(bytes)) {}
  std::string_view name() const override { return "constant"; }
  std::string attributes() const override;
  Types infer(TypesView) const override { return {type}; }
  Tensors vmap(const VmapArgs&) const override;
  Work cost(TypesView inputs, TypesView outputs) const override { return streaming_work(inputs, outputs, 0); }

  const TensorType type;
  const std::vector<std::byte> bytes;
};

/// Returns whether the node only names existing data: a read of state, an input from the host, a constant.
bool is_leaf(const Node& node);

}  // namespace tandem::engine
