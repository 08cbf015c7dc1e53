#include <tandem/nn/models/dlrm.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tandem/nn/drawn_parameter.h>
#include <tandem/ops/embedding_bag.h>
#include <tandem/ops/matmul.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/shape.h>

namespace tandem::nn {
namespace {

// Uniform in ±1/√rows.
Initializer by_rows() {
  return [](const TensorType& type, Fans, const std::string& path, std::uint64_t seed) {
    return default_uniform()(type, {.in = type.shape[0]}, path, seed);
  };
}

// A layer whose weights are normal with variance 2/(in + out), and whose biases have variance 1/out.
LinearOptions layer(std::int64_t in, std::int64_t out) {
  return {.in = in,
          .out = out,
          .init = xavier_normal(),
          .bias_init = normal(1 / std::sqrt(static_cast<double>(out)))};
}

// Returns the number of outputs.
std::int64_t add_layers(Sequential& to, std::int64_t in, const std::vector<std::int64_t>& outputs) {
  for (const std::int64_t out : outputs) {
    to.add<Linear>(layer(in, out));
    to.add([](const Tensor& x) { return relu(x); });
    in = out;
  }
  return in;
}

// The products of each pair of the rows of (N,R,F): (N, R(R−1)/2), of row 1 with row 0, of row 2 with 0 and
// 1, …
Tensor pair_products(const Tensor& rows) {
  const Tensor products = matmul(rows, rows, {.transpose_b = true});
  Tensors below;
  for (std::int64_t r = 1; r < rows.size(1); ++r)
    below.push_back(reshape(slice(slice(products, 1, r, r + 1), 2, 0, r), {rows.size(0), r}));
  return concat(below, 1);
}

}  // namespace

std::vector<std::int64_t> criteo_rows(std::int64_t most) {
  std::vector<std::int64_t> rows{1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
                                 93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
                                 2173,  4,    7046547,  18,      15,  286181, 105,     142572};
  for (std::int64_t& r : rows) r = std::min(r, most);
  return rows;
}

Dlrm::Dlrm(DlrmOptions o) : options_(std::move(o)), bottom_(*this, "bottom"), top_(*this, "top") {
  add_tables_and_layers();
}
Dlrm::Dlrm(ModuleBase& parent, const std::string& name, DlrmOptions o)
    : ModuleOf(parent, name), options_(std::move(o)), bottom_(*this, "bottom"), top_(*this, "top") {
  add_tables_and_layers();
}

void Dlrm::add_tables_and_layers() {
  std::vector<std::int64_t> bottom = options_.bottom;
  bottom.push_back(options_.width);
  add_layers(bottom_, options_.numbers, bottom);
  for (std::size_t k = 0; k < options_.rows.size(); ++k)
    tables_.push_back(add_parameter(
        drawn_parameter(fmt::format("table{}", k), {options_.rows[k], options_.width}, {}, by_rows())));
  const auto vectors = std::ssize(options_.rows) + 1;
  const std::int64_t last = add_layers(top_, options_.width + vectors * (vectors - 1) / 2, options_.top);
  top_.add<Linear>(layer(last, 1));
}

Tensor Dlrm::forward(const Clicks& clicks) {
  const auto tables = std::ssize(tables_);
  if (const TensorType& n = clicks.numbers.type(), &c = clicks.categories.type();
      n.rank() != 2 || c.rank() != 3 || n.shape[0] != c.shape[0] || n.shape[1] != options_.numbers ||
      c.shape[1] != tables)
    throw Error(fmt::format(
        "this DLRM takes numbers (N,{}) and categories (N,{},L) of as many samples, not {} and {}",
        options_.numbers, tables, to_string(n), to_string(c)));
  const Tensor numbers = bottom_(clicks.numbers);
  const std::int64_t samples = numbers.size(0);
  const Tensor rows =
      concat({reshape(numbers, {samples, 1, options_.width}), embedding_bag(tables_, clicks.categories)}, 1);
  return top_(concat({numbers, pair_products(rows)}, 1));
}

}  // namespace tandem::nn
