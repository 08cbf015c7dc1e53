#include <tandem/core/graph/through_f32.h>

#include <algorithm>
#include <array>
#include <vector>

#include <tandem/core/base/convert.h>
#include <tandem/core/base/memory.h>

namespace tandem::engine {
namespace {

constexpr std::size_t kMostOperands = 16;

bool is_narrow(DType d) { return d == DType::bf16 || d == DType::f16; }

void widen(const TensorType& from, const void* data, float* to) {
  if (from.dtype == DType::bf16)
    bf16_to_floats(static_cast<const std::uint16_t*>(data), to, from.elements());
  else
    for (std::int64_t i = 0; i < from.elements(); ++i)
      to[i] = static_cast<float>(load_element(from.dtype, data, i));
}

void narrow(const float* from, const TensorType& to, void* data) {
  if (to.dtype == DType::bf16)
    floats_to_bf16(from, static_cast<std::uint16_t*>(data), to.elements());
  else
    for (std::int64_t i = 0; i < to.elements(); ++i) store_element(to.dtype, data, i, from[i]);
}

class ThroughF32 final : public Kernel {
 public:
  explicit ThroughF32(const KernelSpec& spec)
      : inputs_(spec.inputs.begin(), spec.inputs.end()), outputs_(spec.outputs.begin(), spec.outputs.end()) {
    Types inputs = inputs_, outputs = outputs_;
    for (Types* types : {&inputs, &outputs})
      for (TensorType& t : *types) {
        offsets_.push_back(is_narrow(t.dtype) ? bytes_ : -1);
        if (!is_narrow(t.dtype)) continue;
        t.dtype = DType::f32;
        bytes_ += align_up(t.bytes());
      }
    kernel_ =
        spec.table->make({spec.op, inputs, outputs, spec.tag, spec.threads, spec.microbatches, spec.channel});
  }

  std::int64_t workspace() const override { return bytes_ + kernel_->workspace(); }

  void run(const Launch& l) const override {
    auto* const scratch = static_cast<std::byte*>(l.workspace);
    const auto wide = [&](std::size_t operand) {
      return reinterpret_cast<float*>(scratch + offsets_[operand]);
    };
    std::array<const void*, kMostOperands> in;
    std::array<void*, kMostOperands> out;
    std::copy_n(l.in, inputs_.size(), in.begin());
    std::copy_n(l.out, outputs_.size(), out.begin());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (offsets_[i] < 0) continue;
      widen(inputs_[i], l.in[i], wide(i));
      in[i] = wide(i);
    }
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      if (offsets_[inputs_.size() + o] >= 0) out[o] = wide(inputs_.size() + o);
    kernel_->run({in.data(), out.data(), scratch + bytes_, l.batch, l.rank});
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      if (offsets_[inputs_.size() + o] >= 0) narrow(wide(inputs_.size() + o), outputs_[o], l.out[o]);
  }

 private:
  Types inputs_, outputs_;
  std::vector<std::int64_t> offsets_;  // of the operands' copies, inputs first; −1: used as it is
  std::int64_t bytes_ = 0;
  KernelPtr kernel_;
};

}  // namespace

KernelPtr make_through_f32(const KernelSpec& spec) {
  const auto narrow = [](const TensorType& t) { return is_narrow(t.dtype); };
  if (std::ranges::none_of(spec.inputs, narrow) && std::ranges::none_of(spec.outputs, narrow)) return nullptr;
  if (spec.inputs.size() > kMostOperands || spec.outputs.size() > kMostOperands) return nullptr;
  return std::make_unique<ThroughF32>(spec);
}

}  // namespace tandem::engine
