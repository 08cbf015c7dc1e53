#include "fenced.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/core/base/memory.h>
#include <tandem/core/base/team.h>
#include <tandem/ops/kernels.h>

namespace tandem::testing {
using namespace engine;
namespace {

constexpr std::int64_t kFence = 64;
constexpr unsigned char kFenceByte = 0xa5;

}  // namespace

Fenced::Fenced(std::int64_t bytes, unsigned char fill)
    : bytes_(bytes), memory_(allocate(bytes + 2 * kFence)), data_(memory_.get() + kFence) {
  std::memset(memory_.get(), kFenceByte, static_cast<std::size_t>(bytes + 2 * kFence));
  if (bytes > 0) std::memset(data_, fill, static_cast<std::size_t>(bytes));
}

bool Fenced::intact() const {
  for (std::int64_t i = 0; i < kFence; ++i)
    if (memory_.get()[i] != std::byte{kFenceByte} || data_[bytes_ + i] != std::byte{kFenceByte}) return false;
  return true;
}

Tensors compute_fenced(const OpPtr& op, const Tensors& inputs, int threads) {
  constexpr unsigned char kPoison = 0xff;
  Types types;
  std::vector<const void*> in;
  for (const Tensor& t : inputs) types.push_back(t.type()), in.push_back(t.data());
  const Types out_types = op->infer(types);
  const KernelPtr kernel = cpu_kernels().make({*op, types, out_types, {}, threads});
  const Fenced workspace(kernel->workspace(), kPoison);
  std::vector<Fenced> fenced;
  std::vector<void*> out;
  for (const TensorType& t : out_types) out.push_back(fenced.emplace_back(t.bytes(), kPoison).data());
  const RankContext alone;
  const TeamSize team(threads);
  kernel->run({in.data(), out.data(), workspace.data(), 0, &alone});
  EXPECT_TRUE(workspace.intact()) << op->name() << " wrote outside its workspace";
  Tensors results;
  for (std::size_t o = 0; o < out.size(); ++o) {
    EXPECT_TRUE(fenced[o].intact()) << op->name() << " wrote outside an output";
    results.push_back(Tensor::zeros(out_types[o]));
    std::memcpy(results[o].data(), out[o], static_cast<std::size_t>(out_types[o].bytes()));
  }
  return results;
}

}  // namespace tandem::testing
