#include <tandem/ops/embedding_bag.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/index.h>
#include <tandem/ops/pointwise.h>

namespace tandem {
using namespace engine;
namespace {

void check_ids(const TensorType& ids, std::int64_t tables) {
  if (ids.dtype != DType::i32 || ids.rank() != 3 || ids.shape[1] != tables)
    throw Error(fmt::format("ids must be i32 (N,{},L) for {}, not {}", tables, counted(tables, "table"),
                            to_string(ids)));
}

}  // namespace

BagIds::BagIds(const TensorType& type, const void* ids)
    : ids(static_cast<const std::int32_t*>(ids)),
      samples(type.shape[0]),
      tables(type.shape[1]),
      places(type.shape[2]) {}

std::int64_t BagIds::divisor(std::int64_t sample, std::int64_t table, bool mean) const {
  const std::int32_t* first = of(sample, table);
  const std::int64_t named = std::count_if(first, first + places, [](std::int32_t id) { return id >= 0; });
  return mean ? named : std::min<std::int64_t>(named, 1);
}

void BagIds::check(const std::vector<std::int64_t>& rows) const {
  for (std::int64_t n = 0; n < samples; ++n)
    for (std::int64_t k = 0; k < tables; ++k)
      for (std::int64_t l = 0; l < places; ++l)
        if (const std::int32_t id = of(n, k)[l]; id < -1 || id >= rows[static_cast<std::size_t>(k)])
          throw Error(fmt::format("id {} of sample {}, table {}, place {} is outside the range −1 to {}", id,
                                  n, k, l, rows[static_cast<std::size_t>(k)] - 1));
}

std::string EmbeddingBagOp::attributes() const { return mean ? "mean" : "sum"; }
Types EmbeddingBagOp::infer(TypesView inputs) const {
  if (inputs.size() < 2) throw Error(fmt::format("takes tables and ids, not {} inputs", inputs.size()));
  const TypesView tables = inputs.first(inputs.size() - 1);
  for (const TensorType& t : tables) {
    if (!is_floating(t.dtype) || t.rank() != 2)
      throw Error(fmt::format("a table must be (V,F) and floating, not {}", to_string(t)));
    if (t.dtype != tables[0].dtype || t.shape[1] != tables[0].shape[1])
      throw Error(fmt::format("the tables {} and {} differ in more than their rows", to_string(tables[0]),
                              to_string(t)));
  }
  const TensorType& ids = inputs.back();
  check_ids(ids, static_cast<std::int64_t>(tables.size()));
  return {{tables[0].dtype, {ids.shape[0], ids.shape[1], tables[0].shape[1]}}};
}
Tensors EmbeddingBagOp::vjp(const VjpArgs& args) const {
  std::vector<std::int64_t> rows;
  for (std::size_t k = 0; k + 1 < args.inputs.size(); ++k) rows.push_back(args.inputs[k].size(0));
  Tensors gradients = apply_op(std::make_shared<EmbeddingBagGradOp>(mean, std::move(rows)),
                               {args.grads[0], args.inputs.back()});
  gradients.emplace_back();  // ids
  return gradients;
}
Work EmbeddingBagOp::cost(TypesView inputs, TypesView outputs) const {
  const TensorType& ids = inputs.back();
  const double elements = static_cast<double>(ids.elements() * outputs[0].shape[2]);
  Work work = streaming_work({&ids, 1}, outputs, 0);
  work.flops = elements;
  work.bytes += elements * static_cast<double>(size_of(outputs[0].dtype));
  return work;
}

std::string EmbeddingBagGradOp::attributes() const {
  return fmt::format("{} rows={}", mean ? "mean" : "sum", fmt::join(rows, ","));
}
Types EmbeddingBagGradOp::infer(TypesView inputs) const {
  require_inputs(inputs, 2);
  const auto tables = static_cast<std::int64_t>(rows.size());
  check_ids(inputs[1], tables);
  if (inputs[0].rank() != 3 || inputs[0].shape[0] != inputs[1].shape[0] || inputs[0].shape[1] != tables)
    throw Error(fmt::format("the gradient must be ({},{},F), not {}", inputs[1].shape[0], tables,
                            to_string(inputs[0])));
  Types types;
  for (const std::int64_t count : rows) types.push_back({inputs[0].dtype, {count, inputs[0].shape[2]}});
  return types;
}
Tensors EmbeddingBagGradOp::vjp(const VjpArgs& args) const {
  Tensors inputs;
  for (std::size_t k = 0; k < rows.size(); ++k)
    inputs.push_back(args.grads[k] ? args.grads[k] : Tensor::zeros(args.outputs[k].type()));
  inputs.push_back(args.inputs[1]);
  return {apply_op1(std::make_shared<EmbeddingBagOp>(mean), std::move(inputs)), Tensor()};
}
Work EmbeddingBagGradOp::cost(TypesView inputs, TypesView outputs) const {
  Work work = streaming_work(inputs, outputs, 0);
  const double elements = static_cast<double>(inputs[1].elements() * inputs[0].shape[2]);
  work.flops = elements;
  work.bytes += 2 * elements * static_cast<double>(size_of(inputs[0].dtype));
  return work;
}

Tensor embedding_bag(const Tensors& tables, const Tensor& ids, BagMode mode) {
  if (tables.empty()) throw Error("embedding_bag: there are no tables");
  const DType dtype = tables[0].dtype();
  const bool is_short = dtype == DType::bf16 || dtype == DType::f16;  // summed in f32, and rounded once
  Tensors inputs;
  for (const Tensor& t : tables) inputs.push_back(is_short ? cast(t, DType::f32) : t);
  inputs.push_back(index32(ids));
  const Tensor y = apply_op1(std::make_shared<EmbeddingBagOp>(mode == BagMode::mean), std::move(inputs));
  return is_short ? cast(y, dtype) : y;
}

}  // namespace tandem
