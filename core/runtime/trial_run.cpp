#include <tandem/core/runtime/trial_run.h>

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

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
};

// All devices of one replica, on the calling thread.
class Replica {
 public:
  Replica(const Program& program, const KernelTable& kernels, Host& host) {
    std::vector<InstructionId> count;  // by device
    for (int d = 0; d < program.devices; ++d) {
      devices_.push_back(std::make_unique<Device>(program, d, kernels, host, messages_));
      count.push_back(0);
    }
    for (const InstructionId s : program.instructions.ids()) {
      const auto d = static_cast<std::size_t>(program.lane_of(s).device);
      places_.push_back({devices_[d].get(), count[d]++});
    }
  }
  Device& device(int d) { return *devices_[static_cast<std::size_t>(d)]; }
  // Returns the seconds that an instruction took.
  double execute(InstructionId s, std::int64_t batch) {
    const auto [device, own] = places_[s];
    const TeamSize team(device->executable.threads(own));
    const double begin = steady_seconds();
    device->executable.execute(own, batch);
    return steady_seconds() - begin;
  }

 private:
  struct Place {
    Device* device;
    InstructionId own;  // among the device's own instructions
  };
  Messages messages_;
  std::vector<std::unique_ptr<Device>> devices_;
  IdVector<InstructionId, Place> places_;
};

template <class Numbers> double median(Numbers v) {
  const auto middle = v.begin() + std::ssize(v) / 2;
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

// Lets the calling thread, and the threads that it makes, run on the first `cores` of its cores only.
void take_cores(int cores) {
  cpu_set_t all, some;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  CPU_ZERO(&some);
  for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&some) < cores; ++c)
    if (CPU_ISSET(c, &all)) CPU_SET(c, &some);
  sched_setaffinity(0, sizeof some, &some);
}

// A copy of a Program of one device, whose batches are computed pass by pass.
class Copy {
 public:
  Copy(const Program& program, const KernelTable& kernels, Host& host, const StateDict& state)
      : replica_(program, kernels, host) {
    load_state(program, 0, replica_.device(0).memory, state);
    for (const InstructionId s : program.instructions.ids())
      (program.instruction(s).tag.phase == Phase::forward ? forward_ : backward_).push_back(s);
  }
  void forward() { run(forward_); }
  void backward() {
    run(backward_);
    ++batch_;
  }

 private:
  void run(const std::vector<InstructionId>& pass) {
    for (const InstructionId s : pass) replica_.execute(s, batch_);
  }

  Replica replica_;
  std::vector<InstructionId> forward_, backward_;  // backward: with the update
  std::int64_t batch_ = 0;
};

double seconds_of(const std::function<void()>& work) {
  const double begin = steady_seconds();
  work();
  return steady_seconds() - begin;
}

// Runs each of two functions on a thread of its own. Throws what one of them throws.
void run_both(const std::function<void()>& a, const std::function<void()>& b) {
  std::exception_ptr error;
  std::thread other([&] {
    try {
      b();
    } catch (...) {
      error = std::current_exception();
    }
  });
  try {
    a();
  } catch (...) {
    other.join();
    throw;
  }
  other.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

PassSeconds pass_seconds(const Program& program, const KernelTable& kernels, Host& host,
                         const StateDict& state, int cores) {
  check_state(program, state);
  if (program.devices != 1 || program.replicas != 1 || program.microbatches != 1)
    throw Error("pass_seconds: the Program must have one device, one replica and one micro-batch");
  PassSeconds result;
  std::exception_ptr error;
  std::thread([&] {  // a new thread, so that the caller keeps its cores
    try {
      take_cores(cores);
      Copy a(program, kernels, host, state), b(program, kernels, host, state);
      std::vector<double> forward, backward, beside;
      for (std::int64_t i = 0; i < kWarmUp; ++i) a.forward(), a.backward(), b.forward(), b.backward();
      b.forward();
      for (std::int64_t i = 0; i < kMeasured; ++i) {
        forward.push_back(seconds_of([&] { a.forward(); }));
        backward.push_back(seconds_of([&] { a.backward(); }));
        beside.push_back(seconds_of([&] { run_both([&] { a.forward(); }, [&] { b.backward(); }); }));
        beside.push_back(seconds_of([&] { run_both([&] { a.backward(); }, [&] { b.forward(); }); }));
      }
      result = {median(forward), median(backward), median(beside)};
    } catch (...) {
      error = std::current_exception();
    }
  })
      .join();
  if (error) std::rethrow_exception(error);
  return result;
}

IdVector<InstructionId, double> instruction_seconds(const Program& program, const KernelTable& kernels,
                                                    Host& host, const StateDict& state) {
  check_state(program, state);
  Replica replica(program, kernels, host);
  for (int d = 0; d < program.devices; ++d) load_state(program, d, replica.device(d).memory, state);
  IdVector<InstructionId, std::array<double, kMeasured>> took(program.instructions.size());
  constexpr std::int64_t kBatches = kWarmUp + kMeasured;
  for (std::int64_t unit = 0; unit < kBatches + program.max_lag; ++unit)
    for (const InstructionId s : program.instructions.ids()) {
      const std::int64_t batch = unit - program.instruction(s).lag;
      if (batch < 0 || batch >= kBatches) continue;
      const double seconds = replica.execute(s, batch);
      if (batch >= kWarmUp) took[s][static_cast<std::size_t>(batch - kWarmUp)] = seconds;
    }
  IdVector<InstructionId, double> result;
  for (const auto& t : took) result.push_back(median(t));
  return result;
}

namespace {

// A copy instruction outside its Program.
struct LoneCopy {
  LoneCopy(const Instruction& s, const KernelTable& kernels)
      : bytes(s.inputs[0].bytes()),
        kernel(kernels.make({.op = *s.op, .inputs = s.inputs, .outputs = s.outputs, .tag = s.tag})) {}
  void run(const void* from, void* to) const {
    const RankContext rank;
    kernel->run({.in = &from, .out = &to, .workspace = nullptr, .batch = 0, .rank = &rank});
  }
  std::int64_t bytes;
  KernelPtr kernel;
};

}  // namespace

double copy_slowdown(const Program& program, const KernelTable& kernels, Host& host, const StateDict& state) {
  const auto lane = [&](InstructionId s) { return program.lane_of(s).kind; };
  std::vector<InstructionId> copies;
  for (const InstructionId s : program.instructions.ids())
    if (lane(s) == LaneKind::copy_out || lane(s) == LaneKind::copy_in) copies.push_back(s);
  if (copies.empty()) return 1;
  const auto compute_seconds = [&] {
    double sum = 0;
    const auto seconds = instruction_seconds(program, kernels, host, state);
    for (const InstructionId s : program.instructions.ids())
      if (lane(s) == LaneKind::compute) sum += seconds[s];
    return sum;
  };
  const double alone = compute_seconds();
  std::vector<LoneCopy> lone;
  std::int64_t most = 0;
  for (const InstructionId s : copies) {
    lone.emplace_back(program.instruction(s), kernels);
    most = std::max(most, lone.back().bytes);
  }
  std::vector<std::byte> from(static_cast<std::size_t>(most)), to(from.size());
  std::atomic<bool> has_begun = false;
  const std::jthread copying([&](const std::stop_token& stop) {
    while (!stop.stop_requested())
      for (const LoneCopy& copy : lone) {
        has_begun = true;
        has_begun.notify_one();
        copy.run(from.data(), to.data());
      }
  });
  has_begun.wait(false);
  return compute_seconds() / alone;
}

}  // namespace tandem::engine
