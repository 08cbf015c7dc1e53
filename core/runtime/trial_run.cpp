#include <tandem/core/runtime/trial_run.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/team.h>
#include <tandem/core/runtime/comm.h>
#include <tandem/core/runtime/executable.h>
#include <tandem/core/runtime/state_memory.h>
#include <tandem/core/runtime/timeline.h>

namespace tandem::engine {
namespace {

constexpr std::int64_t kWarmUp = 2, kMeasured = 5;  // batches

using Messages = std::map<std::uint64_t, std::deque<std::vector<std::byte>>>;  // by channel

// Connects the devices of one replica on one thread: a message waits until it is received.
class TrialComm final : public Comm {
 public:
  TrialComm(int rank, int size, Messages& messages) : rank_(rank), size_(size), messages_(messages) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  double all_reduce_sum(void*, std::int64_t, DType, std::span<const int>, std::uint64_t, int) override {
    return steady_seconds();
  }
  void reduce_scatter_sum(void*, std::int64_t, DType, std::span<const int>, std::uint64_t, int) override {}
  void all_gather(void*, std::int64_t, DType, std::span<const int>, std::uint64_t) override {}
  void broadcast(void*, std::int64_t, int, std::span<const int>, std::uint64_t) override {}
  void barrier(std::span<const int>, std::uint64_t) override {}
  void abort(const std::string&) override {}
  void send(const void* data, std::int64_t bytes, int, std::uint64_t channel) override {
    const auto* const begin = static_cast<const std::byte*>(data);
    messages_[channel].emplace_back(begin, begin + bytes);
  }
  void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    auto& waiting = messages_[channel];
    if (waiting.empty() || std::ssize(waiting.front()) != bytes)
      throw Error(fmt::format("trial run: device {} receives what device {} has not sent", rank_, peer));
    std::memcpy(data, waiting.front().data(), static_cast<std::size_t>(bytes));
    waiting.pop_front();
  }

 private:
  int rank_, size_;
  Messages& messages_;
};

struct Device {
  Device(const Program& program, int device, const KernelTable& kernels, Host& host, Messages& messages)
      : comm(device, program.replicas * program.devices, messages),
        executable(project(program, device),
                   {device, 0, program.replicas, device, program.devices, &comm, &host}, memory, kernels) {}
  TrialComm comm;
  RankMemory memory;
  Executable executable;
  InstructionId next = 0;  // of its own instructions
};

double median(std::array<double, kMeasured> v) {
  std::nth_element(v.begin(), v.begin() + kMeasured / 2, v.end());
  return v[kMeasured / 2];
}

}  // namespace

std::vector<double> instruction_seconds(const Program& program, const KernelTable& kernels, Host& host,
                                        const StateDict& state) {
  check_state(program, state);
  Messages messages;
  std::vector<std::unique_ptr<Device>> devices;
  for (int s = 0; s < program.devices; ++s) {
    devices.push_back(std::make_unique<Device>(program, s, kernels, host, messages));
    load_state(program, s, devices.back()->memory, state);
  }
  IdVector<InstructionId, std::array<double, kMeasured>> took(program.instructions.size());
  constexpr std::int64_t kBatches = kWarmUp + kMeasured;
  for (std::int64_t unit = 0; unit < kBatches + program.max_lag; ++unit) {
    for (auto& device : devices) device->next = 0;
    for (const InstructionId s : program.instructions.ids()) {
      Device& device = *devices[static_cast<std::size_t>(program.lane_of(s).device)];
      const InstructionId own = device.next++;
      const std::int64_t batch = unit - program.instruction(s).lag;
      if (batch < 0 || batch >= kBatches) continue;
      const TeamSize team(device.executable.threads(own));
      const double begin = steady_seconds();
      device.executable.execute(own, batch);
      if (batch >= kWarmUp) took[s][static_cast<std::size_t>(batch - kWarmUp)] = steady_seconds() - begin;
    }
  }
  std::vector<double> result;
  for (const auto& t : took) result.push_back(median(t));
  return result;
}

}  // namespace tandem::engine
