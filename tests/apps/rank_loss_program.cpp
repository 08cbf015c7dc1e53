// train_cifar with a rank that fails at a named point: TANDEM_RANK_LOSS=POINT,WAY,RANK. Each rank writes its
// process number to the file TANDEM_RANK_LOSS_LOG, and the one that fails when it does. rank_loss_test.cpp
// starts it.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <unistd.h>

#include <tandem/engine.h>

#include "train_program.h"

namespace {

using namespace tandem;
using namespace tandem::engine;

// The run of the test: 60 batches of 64 images, epochs of 25, a checkpoint after every 20.
constexpr std::int64_t kMiddle = 30, kAfterCheckpoint = 20, kLastOfEpoch = 24;
constexpr std::int64_t kInFlight = 8;  // batches at once, at most

struct Loss {
  std::string point, way;
  int rank = -1;
};

Loss read_loss() {
  Loss loss;
  const char* const text = std::getenv("TANDEM_RANK_LOSS");
  std::istringstream in(text ? text : "none,none,-1");
  std::getline(in, loss.point, ',');
  std::getline(in, loss.way, ',');
  in >> loss.rank;
  return loss;
}

const Loss kLoss = read_loss();
const int kRank = launch_environment().rank;
std::atomic<std::int64_t> last_batch = -1;  // of training, in which a call of the Comm began
std::atomic<bool> failed = false;

void log_line(const std::string& text) {
  if (const char* const file = std::getenv("TANDEM_RANK_LOSS_LOG"))
    std::ofstream(file, std::ios::app) << text + "\n" << std::flush;
}

// Fails if this is the rank, and the point. `now` is what else must hold.
void at(const std::string& point, bool now = true) {
  if (!now || point != kLoss.point || kRank != kLoss.rank || failed.exchange(true)) return;
  const double time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::ostringstream fails;
  fails.precision(17);
  fails << "fails " << time;
  log_line(fails.str());
  if (kLoss.way == "kill") raise(SIGKILL);
  if (kLoss.way == "segv") {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  if (kLoss.way == "exit") std::exit(7);
  if (kLoss.way == "throw") throw std::runtime_error("thrown by the test");
  if (kLoss.way == "stop") raise(SIGSTOP);
}

// The rank's Comm, or its spare one.
class FailingComm final : public Comm {
 public:
  FailingComm(std::unique_ptr<Comm> comm, bool spare) : comm_(std::move(comm)), spare_(spare) {}
  ~FailingComm() override {
    if (spare_) at("end");  // the run is complete, and the ranks meet
  }
  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  double all_reduce_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                        std::uint64_t channel, int threads) override {
    at("all-reduce", !evaluates_ && last_batch == kMiddle);
    at_any_call();
    return comm_->all_reduce_sum(data, count, dtype, group, channel, threads);
  }
  void reduce_scatter_sum(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                          std::uint64_t channel, int threads) override {
    comm_->reduce_scatter_sum(data, count, dtype, group, channel, threads);
  }
  void all_gather(void* data, std::int64_t count, DType dtype, std::span<const int> group,
                  std::uint64_t channel) override {
    comm_->all_gather(data, count, dtype, group, channel);
  }
  void broadcast(void* data, std::int64_t bytes, int root, std::span<const int> group,
                 std::uint64_t channel) override {
    at("planning", spare_);
    comm_->broadcast(data, bytes, root, group, channel);
  }
  void send(const void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    at_transfer();
    comm_->send(data, bytes, peer, channel);
  }
  void receive(void* data, std::int64_t bytes, int peer, std::uint64_t channel) override {
    at_transfer();
    comm_->receive(data, bytes, peer, channel);
  }
  void barrier(std::span<const int> group, std::uint64_t channel) override { comm_->barrier(group, channel); }
  void abort(const std::string& reason) override { comm_->abort(reason); }
  void announce(std::uint64_t channel, std::int64_t batch, std::string_view name) override {
    evaluates_ = batch + kInFlight < last_batch;  // its batches count from 0
    for (std::int64_t last = last_batch; !evaluates_ && last < batch;)
      if (last_batch.compare_exchange_weak(last, batch)) break;
    comm_->announce(channel, batch, name);
  }
  void running(bool now) override { comm_->running(now); }

 private:
  void at_transfer() const {
    at("epoch", spare_ && last_batch == kLastOfEpoch);
    at("transfer", !spare_ && !evaluates_ && last_batch == kMiddle);
    at_any_call();
  }
  void at_any_call() const {
    if (spare_) return;
    at("checkpoint", !evaluates_ && last_batch == kAfterCheckpoint);  // it is being written
    at("evaluation", evaluates_);
  }

  const std::unique_ptr<Comm> comm_;
  const bool spare_;
  std::atomic<bool> evaluates_{false};
};

// Fails at a point before it does its work.
class FailingKernel final : public Kernel {
 public:
  FailingKernel(KernelPtr kernel, std::string point) : kernel_(std::move(kernel)), point_(std::move(point)) {}
  std::int64_t workspace() const override { return kernel_->workspace(); }
  void run(const Launch& launch) const override {
    at(point_, launch.batch == kMiddle);
    kernel_->run(launch);
  }

 private:
  const KernelPtr kernel_;
  const std::string point_;
};

KernelPtr make_failing(const KernelSpec& spec, std::string point) {
  KernelSpec inner = spec;
  inner.table = &cpu_kernels();
  return std::make_unique<FailingKernel>(cpu_kernels().make(inner), std::move(point));
}
KernelPtr make_matmul(const KernelSpec& spec) { return make_failing(spec, "compute"); }
KernelPtr make_copy(const KernelSpec& spec) { return make_failing(spec, "swap"); }

void adjust(TrainerOptions& options) {
  static KernelTable kernels("rank loss", &cpu_kernels());
  kernels.add("matmul", make_matmul);
  kernels.add("copy_out", make_copy);
  kernels.add("copy_in", make_copy);
  options.strategy.kernels = &kernels;
  for (auto& comm : options.comms) comm = std::make_unique<FailingComm>(std::move(comm), false);
  if (options.spare) options.spare = std::make_unique<FailingComm>(std::move(options.spare), true);
}

}  // namespace

int main(int argc, char** argv) {
  prepare_teams(argv);  // may start the program again, with other settings of OpenMP
  log_line("process " + std::to_string(getpid()));
  if (const char* const job = std::getenv("OMPI_MCA_ess_base_jobid")) {
    std::ostringstream number;
    number << "job " << std::hex << std::stoul(job);
    log_line(number.str());
  }
  at("start");
  return tandem::apps::train(argc, argv, adjust);
}
