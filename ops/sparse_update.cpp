#include <tandem/ops/sparse_update.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/ops/launch_operands.h>

namespace tandem::engine {
namespace {

constexpr std::size_t kFirstPair = 2;  // after the table and the rate

// Throws Error unless rows have an axis, or axes, of ids before those of the table's rows.
void check_pair(const TableGradient& g, const TensorType& w, const TensorType& ids, const TensorType& rows) {
  if (ids.dtype != DType::i32 || rows.dtype != w.dtype)
    throw Error(fmt::format("ids and rows must be i32 and {}, not {} and {}", name_of(w.dtype),
                            to_string(ids), to_string(rows)));
  Shape expected = ids.shape;
  if (g.bag) {
    const std::size_t rank = g.replicas > 0 ? 4 : 3;
    if (ids.shape.size() != rank || g.table >= ids.shape[rank - 2])
      throw Error(fmt::format("ids of bags must be (N,K,L) with table {}, not {}", g.table, to_string(ids)));
    expected.pop_back();
  }
  if (g.replicas > 0 && (ids.shape.empty() || ids.shape[0] != g.replicas))
    throw Error(
        fmt::format("ids must begin with an axis of {} replicas, not {}", g.replicas, to_string(ids)));
  expected.insert(expected.end(), w.shape.begin() + 1, w.shape.end());
  require_type("rows", rows, {w.dtype, expected});
}

}  // namespace

int TableGradient::pairs() const { return std::accumulate(parts.begin(), parts.end(), 0); }

std::string SparseSgdUpdateOp::attributes() const {
  return fmt::format("parts={} replicas={} bag={} mean={} table={}", fmt::join(gradient.parts, ","),
                     gradient.replicas, int{gradient.bag}, int{gradient.mean}, gradient.table);
}
Types SparseSgdUpdateOp::infer(TypesView inputs) const {
  require_inputs(inputs, kFirstPair + 2 * static_cast<std::size_t>(gradient.pairs()));
  const TensorType& w = inputs[0];
  if ((w.dtype != DType::f32 && w.dtype != DType::f64) || w.rank() < 1)
    throw Error(fmt::format("updates tables (V,…) in f32 or f64, not {}", to_string(w)));
  if (!is_floating(inputs[1].dtype) || inputs[1].rank() != 0)
    throw Error(fmt::format("the learning rate must be a floating scalar, not {}", to_string(inputs[1])));
  for (std::size_t i = kFirstPair; i < inputs.size(); i += 2)
    check_pair(gradient, w, inputs[i], inputs[i + 1]);
  if (const std::int64_t rows = TableRows(gradient, inputs).count();
      rows > std::numeric_limits<std::int32_t>::max())
    throw Error(fmt::format("{} rows are more than an update can number", rows));
  return {w};
}
Tensors SparseSgdUpdateOp::vjp(const VjpArgs&) const {
  no_rule(*this, "vjp", "an update ends the batch's graph");
}
Work SparseSgdUpdateOp::cost(TypesView inputs, TypesView) const {
  const TableRows rows(gradient, inputs);
  const double elements = static_cast<double>(rows.count() * rows.features());
  return {.flops = 3 * elements, .bytes = 3 * elements * static_cast<double>(size_of(inputs[0].dtype))};
}

Tensor sparse_sgd_update(const Tensor& w, const Tensor& lr, const Tensors& pairs, TableGradient gradient) {
  Tensors inputs{w, lr};
  inputs.insert(inputs.end(), pairs.begin(), pairs.end());
  return apply_op1(std::make_shared<SparseSgdUpdateOp>(std::move(gradient)), std::move(inputs));
}

TableRows::TableRows(const TableGradient& gradient, TypesView inputs)
    : gradient_(gradient),
      replicas_(std::max(1, gradient.replicas)),
      table_rows_(inputs[0].shape[0]),
      features_(table_rows_ > 0 ? inputs[0].elements() / table_rows_ : 0),
      row_bytes_(features_ * size_of(inputs[0].dtype)) {
  int input = kFirstPair;
  for (std::size_t part = 0; part < gradient.parts.size(); ++part)
    for (int i = 0; i < gradient.parts[part]; ++i, input += 2) {
      const TensorType& ids = inputs[static_cast<std::size_t>(input)];
      Pair& pair = pairs_.emplace_back(Pair{input, static_cast<int>(part), ids.elements() / replicas_});
      if (gradient.bag) {
        pair.places = ids.shape.back();
        pair.tables = ids.shape[ids.shape.size() - 2];
        pair.rows /= pair.tables;
      }
      of_replica_ += pair.rows;
    }
}

std::int32_t TableRows::id(const Launch& l, const Pair& pair, int replica, std::int64_t row) const {
  const std::int64_t places = pair.places,
                     bag = replica * (pair.rows / places) + row / places;  // without bags: the row
  const std::int64_t at = (bag * pair.tables + gradient_.table) * places + row % places;
  return input<std::int32_t>(l, pair.input)[at];
}

std::int64_t TableRows::list(const Launch& l, Row* rows) const {
  std::int64_t found = 0;
  std::int32_t order = 0;
  for (int replica = 0; replica < replicas_; ++replica)
    for (const Pair& pair : pairs_)
      for (std::int64_t row = 0; row < pair.rows; ++row, ++order) {
        const std::int32_t id = this->id(l, pair, replica, row);
        if (id == -1 && gradient_.bag) continue;
        if (id < 0 || id >= table_rows_)
          throw Error(fmt::format("id {} (number {} of {}) is outside the range 0 to {}", id, row, pair.rows,
                                  table_rows_ - 1));
        rows[found++] = {id, order};
      }
  return found;
}

TableRows::Place TableRows::place(const Launch& l, std::int32_t order) const {
  const auto replica = static_cast<int>(order / of_replica_);
  std::int64_t row = order % of_replica_;
  const Pair* pair = pairs_.data();
  while (row >= pair->rows) row -= pair++->rows;
  const std::int64_t places = pair->places, bag = replica * (pair->rows / places) + row / places;
  std::int64_t divisor = 1;
  if (gradient_.mean) {
    divisor = 0;
    for (std::int64_t p = 0; p < places; ++p) divisor += id(l, *pair, replica, row - row % places + p) >= 0;
  }
  const auto* data = static_cast<const std::byte*>(l.in[pair->input + 1]);
  return {replica, pair->part, data + (bag * pair->tables + gradient_.table) * row_bytes_, divisor};
}

}  // namespace tandem::engine
