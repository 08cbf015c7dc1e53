#include "test_op.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/runtime/comm.h>

namespace tandem::testing {
using namespace engine;

Tensors TestOp::vjp(const VjpArgs&) const { no_rule(*this, "vjp", "it only stands for an instruction"); }
Tensors TestOp::vmap(const VmapArgs&) const { no_rule(*this, "vmap", "it only stands for an instruction"); }

namespace {
std::uint64_t mix(std::uint64_t h) {  // splitmix64
  h += 0x9e3779b97f4a7c15u;
  h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
  h = (h ^ h >> 27) * 0x94d049bb133111ebu;
  return h ^ h >> 31;
}
}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  std::uint64_t h = bytes.size();
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<std::size_t>(8, bytes.size() - i));
    h = mix(h ^ word);
  }
  return h;
}

void fill_bytes(std::span<std::byte> bytes, std::uint64_t hash) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = mix(hash + i);
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i));
  }
}

std::uint64_t output_hash(std::uint64_t made, std::size_t o) { return mix(made ^ (o + 1)); }

std::uint64_t made_hash(const std::string& instruction, std::int64_t batch,
                        std::span<const std::uint64_t> read) {
  std::uint64_t h = mix(fnv1a(instruction) + static_cast<std::uint64_t>(batch));
  for (auto r : read) h = mix(h ^ r);
  return h;
}

namespace {

class TestKernel final : public Kernel {
 public:
  explicit TestKernel(const KernelSpec& spec)
      : op_(static_cast<const TestOp&>(spec.op)), channel_(spec.channel) {
    for (const auto& t : spec.inputs) in_bytes_.push_back(t.bytes());
    for (const auto& t : spec.outputs) out_bytes_.push_back(t.bytes());
  }

  void run(const Launch& launch) const override {
    const auto b = static_cast<std::size_t>(launch.batch);
    auto& read = op_.log->read.at(b);
    std::uint64_t& made = op_.log->made.at(b);
    if (op_.kind == TestOp::Kind::receive)
      launch.rank->comm->receive(launch.out[0], out_bytes_[0], op_.peer, channel_);
    read.clear();
    for (std::size_t i = 0; i < in_bytes_.size(); ++i) read.push_back(hash_bytes(input(launch, i)));
    made = made_hash(op_.instruction, launch.batch, read);
    switch (op_.kind) {
      case TestOp::Kind::make: make(launch, made); break;
      case TestOp::Kind::send: launch.rank->comm->send(launch.in[0], in_bytes_[0], op_.peer, channel_); break;
      case TestOp::Kind::meet: meet(*launch.rank); break;
      case TestOp::Kind::receive: break;
    }
    // Detects a neighbor that overwrites inputs too early.
    for (std::size_t i = 0; i < in_bytes_.size(); ++i)
      if (!replaced(launch, i) && hash_bytes(input(launch, i)) != read[i])
        throw Error(fmt::format("input {} changed under the reader", i));
  }

 private:
  std::span<const std::byte> input(const Launch& launch, std::size_t i) const {
    return {static_cast<const std::byte*>(launch.in[i]), static_cast<std::size_t>(in_bytes_[i])};
  }
  bool replaced(const Launch& launch, std::size_t i) const {
    return std::find(launch.out, launch.out + out_bytes_.size(), launch.in[i]) !=
           launch.out + out_bytes_.size();
  }
  static void linger(std::uint64_t hash) {
    if (hash % 4 == 0) std::this_thread::yield();
  }

  void make(const Launch& launch, std::uint64_t made) const {
    constexpr std::size_t kScratch = 8;
    if (launch.workspace) std::memcpy(launch.workspace, &made, kScratch);
    linger(made);
    for (std::size_t o = 0; o < out_bytes_.size(); ++o) {
      const auto bytes = static_cast<std::size_t>(out_bytes_[o]);
      fill_bytes({static_cast<std::byte*>(launch.out[o]), bytes}, output_hash(made, o));
      linger(made >> (2 + o));
    }
    if (launch.workspace && std::memcmp(launch.workspace, &made, kScratch) != 0)
      throw Error("the workspace was overwritten");
  }

  static void meet(const RankContext& rank, std::uint64_t channel) {
    std::vector<int> all;
    for (int r = 0; r < rank.devices; ++r) all.push_back(r);
    if (rank.comm) rank.comm->barrier(all, channel);
  }
  void meet(const RankContext& rank) const { meet(rank, channel_); }

  const TestOp& op_;
  std::uint64_t channel_;
  std::vector<std::int64_t> in_bytes_, out_bytes_;
};

}  // namespace

const KernelTable& idle_kernels() {
  static const KernelTable table = [] {
    KernelTable t("idle");
    t.add("test", [](const KernelSpec&) -> KernelPtr { return make_kernel([](const Launch&) {}); });
    return t;
  }();
  return table;
}

const KernelTable& test_kernels() {
  static const KernelTable table = [] {
    KernelTable t("test");
    t.add("test", [](const KernelSpec& spec) -> KernelPtr { return std::make_unique<TestKernel>(spec); });
    return t;
  }();
  return table;
}

}  // namespace tandem::testing
