// Trains an image classifier on CIFAR-10 or CIFAR-100, or on drawn images of the same form.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

#include <tandem/engine.h>

#include "log.h"
#include "signal_watch.h"
#include "standard_output.h"
#include "training_run.h"

namespace {

using namespace tandem;
using namespace tandem::engine;

constexpr int kFailed = 1;
constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kFirstNotice = std::chrono::seconds(10);

// Returns whether this is one of several processes, and not the one that reports.
bool leaves_it_to_another(const MpiSession* mpi, int reporter) {
  try {
    const LaunchEnvironment env = launch_environment();
    return mpi ? mpi->rank() != reporter : env.launched && env.size > 1 && env.rank != reporter;
  } catch (const std::exception&) {
    return false;
  }
}

// One rank reports for all, because an error reaches every rank. The others report it only if that rank has
// not ended the job within kPatience.
int fail(const std::exception& error, int signal, const MpiSession* mpi, int reporter) {
  if (signal == 0) signal = apps::signal_behind(error);
  if (leaves_it_to_another(mpi, reporter)) std::this_thread::sleep_for(kPatience);
  apps::log_error(signal ? apps::interruption(signal) : error.what());
  std::fflush(nullptr);
  const int code = signal ? apps::status_after(signal) : kFailed;
  if (mpi) end_mpi_job(code);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  prepare_teams(argv);
  // Makes large tensors come from the system and return to it. By default, the first one that is freed raises
  // this limit; then the copies of the state, one for each checkpoint, leave holes in every thread's heap.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  std::signal(SIGXFSZ, SIG_IGN);  // if a file reaches its size limit, the write fails instead
  apps::start_log("train_cifar");
  std::optional<apps::SignalWatch> signals;
  std::unique_ptr<MpiSession> mpi;
  int reporter = 0;
  try {
    signals.emplace();
    apps::require_standard_output();
    apps::TrainOptions options;
    if (!apps::parse(argc, argv, options)) {
      apps::finish_standard_output();
      return 0;
    }
    if (options.transport == "mpi") {
      const std::chrono::milliseconds deadline(std::llround(options.deadline * 1000));
      const auto patience = std::min<std::chrono::milliseconds>(kFirstNotice, deadline / 2);
      mpi = std::make_unique<MpiSession>(MpiStart{patience, deadline, apps::log_error});
    }
    apps::TrainingRun run(std::move(options), *signals, mpi.get());
    reporter = run.main_rank();
    run.run();
    apps::finish_standard_output();
    return 0;
  } catch (const std::exception& e) {
    return fail(e, signals ? signals->signal() : 0, mpi.get(), reporter);
  }
}
