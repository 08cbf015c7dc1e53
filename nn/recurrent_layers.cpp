#include <tandem/nn/recurrent_layers.h>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/nn/drawn_parameter.h>
#include <tandem/ops/lstm.h>
#include <tandem/ops/pointwise.h>

namespace tandem::nn {
namespace {

Parameter drawn(const std::string& name, Shape shape, std::int64_t cells) {
  return drawn_parameter(name, std::move(shape), {.in = cells}, default_uniform());
}

void require_sizes(const std::string& name, std::int64_t in, std::int64_t cells) {
  if (in < 1 || cells < 1)
    throw Error(fmt::format("LSTM '{}' has {} inputs and {} cells: give 1 or more", name, in, cells));
}

}  // namespace

Lstm::Lstm(ModuleBase& parent, const std::string& name, LstmSizes s)
    : Module(parent, name), reverse_(s.reverse) {
  require_sizes(name, s.in, s.cells);
  const std::int64_t outputs = s.projected > 0 ? s.projected : s.cells;
  const auto add = [&](const char* parameter, Shape shape) {
    return add_parameter(drawn(parameter, std::move(shape), s.cells));
  };
  weight_ih = add("weight_ih", {4 * s.cells, s.in});
  weight_hh = add("weight_hh", {4 * s.cells, outputs});
  if (s.bias) {
    bias_ih = add("bias_ih", {4 * s.cells});
    bias_hh = add("bias_hh", {4 * s.cells});
  }
  if (s.projected > 0) weight_hr = add("weight_hr", {outputs, s.cells});
}

Tensor Lstm::forward(const Tensor& x, const Tensor& lengths) {
  return lstm(x,
              {.input = weight_ih,
               .hidden = weight_hh,
               .bias = bias_ih ? bias_ih + bias_hh : Tensor(),
               .projection = weight_hr},
              {.reverse = reverse_, .lengths = lengths});
}

ResidualLstm::ResidualLstm(ModuleBase& parent, const std::string& name, ResidualLstmSizes s)
    : Module(parent, name), reverse_(s.reverse) {
  require_sizes(name, s.features, s.cells);
  const std::int64_t gates = 3 * s.cells + s.features;
  const auto add = [&](const char* parameter, Shape shape) {
    return add_parameter(drawn(parameter, std::move(shape), s.cells));
  };
  weight_ih = add("weight_ih", {gates, s.features});
  weight_hh = add("weight_hh", {gates, s.features});
  bias = add("bias", {gates});
  peepholes = add("peepholes", {2, s.cells});
  weight_co = add("weight_co", {s.features, s.cells});
  weight_hr = add("weight_hr", {s.features, s.cells});
}

Tensor ResidualLstm::forward(const Tensor& x, const Tensor& lengths) {
  return residual_lstm(x,
                       {.input = weight_ih,
                        .hidden = weight_hh,
                        .bias = bias,
                        .peepholes = peepholes,
                        .output_peephole = weight_co,
                        .projection = weight_hr},
                       {.reverse = reverse_, .lengths = lengths});
}

}  // namespace tandem::nn
