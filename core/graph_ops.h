#pragma once
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/graph.h>
#include <tandem/core/op.h>

namespace tandem {

/// read(slot, age): what batch b−age assigned to the slot, or the state at the start of the run when
/// that batch precedes it. Never computed: its output *is* the state's memory.
class Read final : public Op {
 public:
  Read(SlotId slot, int age, TensorType type) : slot(slot), age(age), type(std::move(type)) {}
  std::string_view name() const override { return "read"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType>) const override { return {type}; }
  Tensors vjp(const VjpArgs&) const override;
  Tensors batch(const BatchArgs&) const override;
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const SlotId slot;
  const int age;
  const TensorType type;
};

/// assign(slot, value): the slot's contents from this batch on. Free where the value can be placed in
/// the state's memory, a copy elsewhere.
class Assign final : public Op {
 public:
  explicit Assign(SlotId slot) : slot(slot) {}
  std::string_view name() const override { return "assign"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType> inputs) const override;
  Tensors vjp(const VjpArgs&) const override;
  Tensors batch(const BatchArgs&) const override;
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const SlotId slot;
};

/// Data that the host supplies per batch. `per_model` inputs (learning rates, seeds) get a leading
/// model axis when the graph is batched; the others are shared by all models.
class Input final : public Op {
 public:
  Input(std::string input, TensorType type, bool per_model)
      : input(std::move(input)), type(std::move(type)), per_model(per_model) {}
  std::string_view name() const override { return "input"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType>) const override { return {type}; }
  Tensors vjp(const VjpArgs&) const override;
  Tensors batch(const BatchArgs&) const override;
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const std::string input;
  const TensorType type;
  const bool per_model;
};

/// Delivers its input to the host, by batch.
class Result final : public Op {
 public:
  explicit Result(std::string result) : result(std::move(result)) {}
  std::string_view name() const override { return "result"; }
  std::string attributes() const override { return "name=" + result; }
  Types infer(std::span<const TensorType>) const override { return {}; }
  Tensors vjp(const VjpArgs&) const override;
  Tensors batch(const BatchArgs&) const override;
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const std::string result;
};

/// Fixed contents.
class Constant final : public Op {
 public:
  Constant(TensorType type, std::vector<std::byte> bytes) : type(std::move(type)), bytes(std::move(bytes)) {}
  std::string_view name() const override { return "constant"; }
  std::string attributes() const override;
  Types infer(std::span<const TensorType>) const override { return {type}; }
  Tensors vjp(const VjpArgs&) const override;
  Tensors batch(const BatchArgs&) const override;
  Work cost(std::span<const TensorType>, std::span<const TensorType>) const override;
  std::vector<Alias> may_alias(std::span<const TensorType>) const override { return {}; }

  const TensorType type;
  const std::vector<std::byte> bytes;
};

/// Kernels of `input`, `result`, `constant` and `assign`, the same on every CPU backend.
void add_graph_op_kernels(class KernelTable& table);

/// Does it only name what is there before anything is computed: a read of state, the host's data, a constant?
bool is_leaf(const Node& node);

}  // namespace tandem
