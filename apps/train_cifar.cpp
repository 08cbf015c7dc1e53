// Trains an image classifier on CIFAR-10 or CIFAR-100, or on drawn images of the same form.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include <tandem/core/error.h>
#include <tandem/core/team.h>
#include <tandem/dist/mpi_comm.h>

#include "trainer.h"

namespace {

constexpr int kInterrupted = 130;  // 128 + SIGINT, as shells report it

extern "C" void on_interrupt(int) {
  if (tandem::apps::CifarTraining::interrupted.exchange(true))
    std::_Exit(kInterrupted);  // the second time, at once
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tandem;
  bound_team_spin(argv);
  std::unique_ptr<MpiSession> mpi;
  const auto fail = [&](int code, const char* message) {
    fmt::print(stderr, "train_cifar: {}\n", message);
    std::fflush(nullptr);
    if (mpi) end_mpi_job(code);
    return code;
  };
  try {
    apps::TrainOptions options;
    if (!apps::parse(argc, argv, apps::network_names(), options)) return 0;
    if (options.transport == "mpi") mpi = std::make_unique<MpiSession>();
    for (int signal : {SIGINT, SIGTERM})
      std::signal(signal, on_interrupt);  // mpirun turns one into the other
    apps::Trainer(std::move(options), mpi.get()).run();
    return 0;
  } catch (const Aborted& e) {
    if (apps::CifarTraining::interrupted) return fail(kInterrupted, "interrupted");
    if (mpi)
      std::this_thread::sleep_for(
          std::chrono::seconds(1));  // the rank that failed first speaks, and ends the job
    return fail(1, e.what());
  } catch (const std::exception& e) {
    if (apps::CifarTraining::interrupted) return fail(kInterrupted, "interrupted");
    return fail(1, e.what());
  }
}
