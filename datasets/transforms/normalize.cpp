#include <tandem/datasets/transforms/normalize.h>

#include <fmt/format.h>

namespace tandem {
namespace {

/// The compiler knows kChannels, so an image with 3 channels takes no longer than storing its values.
template <std::size_t kChannels, class T>
void gather(const T* table, const std::byte* in, std::size_t pixels, T* out) {
  for (std::size_t i = 0; i < pixels; ++i, in += kChannels, out += kChannels)
    for (std::size_t c = 0; c < kChannels; ++c)
      out[c] = table[std::to_integer<std::size_t>(in[c]) * kChannels + c];
}

}  // namespace

Normalize::Normalize(std::span<const double> mean, std::span<const double> deviation, DType dtype)
    : channels_(mean.size()), dtype_(dtype) {
  if (mean.size() != deviation.size() || mean.empty() || (dtype != DType::f32 && dtype != DType::f64))
    throw Error(
        fmt::format("Normalize: {} and {} to {}; give as many of each as there are channels, and f32 or f64",
                    counted(std::ssize(mean), "mean"), counted(std::ssize(deviation), "standard deviation"),
                    name_of(dtype)));
  for (const double d : deviation)
    if (!(d > 0)) throw Error(fmt::format("Normalize: a standard deviation of {}; it must be above 0", d));
  for (int value = 0; value < 256; ++value)
    for (std::size_t c = 0; c < channels_; ++c) {
      const double normal = (value / 255.0 - mean[c]) / deviation[c];
      dtype == DType::f32 ? f32_.push_back(static_cast<float>(normal)) : f64_.push_back(normal);
    }
}

TensorType Normalize::type(const TensorType& in) const {
  require_image("Normalize", in);
  if (in.shape[2] != static_cast<std::int64_t>(channels_))
    throw Error(fmt::format("Normalize has {} for {}; give one for each channel",
                            counted(static_cast<std::int64_t>(channels_), "mean"), to_string(in)));
  return {dtype_, in.shape};
}

template <class T> void Normalize::look_up(const std::vector<T>& table, Sample& sample) const {
  const std::size_t values = sample.data.size(), pixels = values / channels_;
  sample.spare.resize(values * sizeof(T));
  auto* const out = reinterpret_cast<T*>(sample.spare.data());
  if (channels_ == 3) {
    gather<3>(table.data(), sample.data.data(), pixels, out);
  } else {
    for (std::size_t i = 0; i < values; ++i)
      out[i] = table[std::to_integer<std::size_t>(sample.data[i]) * channels_ + i % channels_];
  }
  sample.data.swap(sample.spare);
}

void Normalize::apply(std::int64_t, std::int64_t, const TensorType&, Sample& sample) const {
  dtype_ == DType::f32 ? look_up(f32_, sample) : look_up(f64_, sample);
}

}  // namespace tandem
