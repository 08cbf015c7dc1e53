#include <array>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/ops/collective.h>

namespace tandem::engine {
namespace {

/// The ranks that take part. They are stored on the stack, because `run` allocates nothing.
class Group {
 public:
  void add(int rank) {
    if (size_ == kMax) throw Error(fmt::format("a group can have at most {} ranks", kMax));
    ranks_[size_++] = rank;
  }
  operator std::span<const int>() const { return {ranks_.data(), size_}; }

 private:
  static constexpr std::size_t kMax = 4096;
  std::array<int, kMax> ranks_;
  std::size_t size_ = 0;
};

Comm& comm_of(const Launch& launch, const char* op) {
  if (launch.rank->comm) return *launch.rank->comm;
  throw Error(fmt::format("{} needs other ranks, but this run is not distributed: it has no Comm", op));
}

// The ranks of this device's replicas.
Group replicas_of(const RankContext& me, int replicas, const char* op) {
  if (me.replicas != replicas)
    throw Error(fmt::format("rank {}: an {} over {} replicas in a run that has {}", me.rank, op, replicas,
                            me.replicas));
  Group group;
  for (int replica = 0; replica < replicas; ++replica) group.add(replica * me.devices + me.device);
  return group;
}

class AllReduceKernel final : public Kernel {
 public:
  explicit AllReduceKernel(const KernelSpec& spec)
      : dtype_(spec.inputs[0].dtype),
        replicas_(static_cast<const AllReduceOp&>(spec.op).replicas),
        channel_(spec.channel) {
    for (const TensorType& t : spec.inputs) bytes_.push_back(t.bytes());
  }

  void run(const Launch& l) const override {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (l.in[i] != l.out[i] && bytes_[i] > 0)
        std::memcpy(l.out[i], l.in[i], static_cast<std::size_t>(bytes_[i]));
    if (replicas_ == 1) return;
    const RankContext& me = *l.rank;
    Comm& comm = comm_of(l, "all_reduce");
    const Group group = replicas_of(me, replicas_, "all_reduce");
    const double met = comm.all_reduce_sum(l.out[0], span_bytes(l, me.rank) / size_of(dtype_), dtype_, group,
                                           channel_, l.threads);
    if (l.met) *l.met = met;
  }

 private:
  // From the first value to the end of the last. The sum includes the padding between them, which is small.
  std::int64_t span_bytes(const Launch& l, int rank) const {
    const auto at = [&](std::size_t i) { return static_cast<const std::byte*>(l.out[i]); };
    for (std::size_t i = 1; i < bytes_.size(); ++i) {
      const std::ptrdiff_t gap = at(i) - (at(i - 1) + bytes_[i - 1]);
      if (gap < 0 || gap >= kAlignment || gap % size_of(dtype_) != 0)
        throw Error(fmt::format(
            "rank {}: values {} and {} of an all_reduce are {} bytes apart; they must be placed one "
            "after the other, less than {} apart",
            rank, i - 1, i, gap, kAlignment));
    }
    return at(bytes_.size() - 1) + bytes_.back() - at(0);
  }

  DType dtype_;
  int replicas_;
  std::uint64_t channel_;
  std::vector<std::int64_t> bytes_;  // of each value
};

KernelPtr make_all_reduce(const KernelSpec& spec) { return std::make_unique<AllReduceKernel>(spec); }

KernelPtr make_all_gather(const KernelSpec& spec) {
  const int replicas = static_cast<const AllGatherOp&>(spec.op).replicas;
  const Types types(spec.inputs.begin(), spec.inputs.end());
  return make_kernel([replicas, types, channel = spec.channel](const Launch& l) {
    const RankContext& me = *l.rank;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::int64_t bytes = types[i].bytes();
      if (bytes == 0) continue;
      std::memcpy(static_cast<std::byte*>(l.out[i]) + me.replica * bytes, l.in[i],
                  static_cast<std::size_t>(bytes));
      if (replicas == 1) continue;
      comm_of(l, "all_gather")
          .all_gather(l.out[i], replicas * types[i].elements(), types[i].dtype,
                      replicas_of(me, replicas, "all_gather"), channel);
    }
  });
}

int peer_rank(const RankContext& me, int device, const char* op) {
  if (device < 0 || device >= me.devices || device == me.device)
    throw Error(fmt::format("rank {} (device {} of {}): {} with device {}", me.rank, me.device, me.devices,
                            op, device));
  return me.replica * me.devices + device;
}

KernelPtr make_send(const KernelSpec& spec) {
  const int device = static_cast<const SendOp&>(spec.op).peer_device;
  return make_kernel([device, bytes = spec.inputs[0].bytes(), channel = spec.channel](const Launch& l) {
    comm_of(l, "send").send(l.in[0], bytes, peer_rank(*l.rank, device, "send"), channel);
  });
}

KernelPtr make_receive(const KernelSpec& spec) {
  const int device = static_cast<const ReceiveOp&>(spec.op).peer_device;
  return make_kernel([device, bytes = spec.outputs[0].bytes(), channel = spec.channel](const Launch& l) {
    comm_of(l, "receive").receive(l.out[0], bytes, peer_rank(*l.rank, device, "receive"), channel);
  });
}

KernelPtr make_barrier(const KernelSpec& spec) {
  return make_kernel([channel = spec.channel](const Launch& l) {
    const RankContext& me = *l.rank;
    if (me.devices == 1) return;
    Group group;
    for (int i = 0; i < me.devices; ++i) group.add(me.replica * me.devices + i);
    comm_of(l, "barrier").barrier(group, channel);
  });
}

}  // namespace

void add_collective_kernels(KernelTable& table) {
  table.add("all_reduce", make_all_reduce);
  table.add("all_gather", make_all_gather);
  table.add("send", make_send);
  table.add("receive", make_receive);
  table.add("barrier", make_barrier);
}

}  // namespace tandem::engine
