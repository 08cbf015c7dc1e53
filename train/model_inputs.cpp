#include <tandem/train/model_inputs.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace tandem {
using namespace engine;
namespace {

void require(bool fits, const HostInput& input, std::size_t models, const char* type) {
  if (!fits || input.type.elements() != static_cast<std::int64_t>(models))
    throw Error(fmt::format(
        "the model has an input '{}' of {}; training uses this name for {} {}, so give the input another name",
        input.name, to_string(input.type), models, type));
}

}  // namespace

void check_rate(double rate) {
  if (!(rate >= 0) || std::isinf(rate))
    throw Error(fmt::format("a learning rate of {}: it must be 0 or more, and finite", rate));
}

void fill_rates(const std::vector<double>& all, const HostInput& input) {
  const auto rates = of_models(all, input.models);
  require(input.type.dtype == DType::f32 || input.type.dtype == DType::f64, input, rates.size(),
          "f32 or f64");
  for (std::size_t m = 0; m < rates.size(); ++m) input.set(static_cast<std::int64_t>(m), rates[m]);
}

void fill_seeds(const std::vector<std::uint64_t>& all, const HostInput& input) {
  const auto seeds = of_models(all, input.models);
  require(input.type.dtype == DType::i64, input, seeds.size(), "i64");
  std::ranges::copy(seeds, input.as<std::int64_t>().begin());
}

void fill_active(const std::vector<char>& all, const HostInput& input) {
  const auto active = of_models(all, input.models);
  require(input.type.dtype == DType::b8, input, active.size(), "b8");
  for (std::size_t m = 0; m < active.size(); ++m) input.set(static_cast<std::int64_t>(m), active[m] != 0);
}

}  // namespace tandem
