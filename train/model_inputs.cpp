#include <tandem/train/model_inputs.h>

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/error.h>

namespace tandem {
using namespace engine;
namespace {

[[noreturn]] void refuse(const char* name, const char* type, std::size_t models, std::size_t bytes) {
  throw Error(fmt::format(
      "the model has an input '{}' of {}; training uses this name for {} {}, so give the input another name",
      name, counted(static_cast<std::int64_t>(bytes), "byte"), models, type));
}

}  // namespace

void check_rate(double rate) {
  if (!(rate >= 0) || std::isinf(rate))
    throw Error(fmt::format("a learning rate of {}: it must be 0 or more, and finite", rate));
}

void fill_rates(std::size_t models, const std::function<double(std::size_t)>& rate,
                std::span<std::byte> out) {
  if (out.size() != models * sizeof(float) && out.size() != models * sizeof(double))
    refuse("lr", "f32 or f64", models, out.size());
  const DType dtype = floating_dtype(out.size(), models);
  for (std::size_t m = 0; m < models; ++m)
    store_element(dtype, out.data(), static_cast<std::int64_t>(m), rate(m));
}

void fill_seeds(const std::vector<std::uint64_t>& seeds, std::span<std::byte> out) {
  if (out.size() != seeds.size() * sizeof(std::uint64_t)) refuse("seed", "i64", seeds.size(), out.size());
  std::memcpy(out.data(), seeds.data(), out.size());
}

}  // namespace tandem
