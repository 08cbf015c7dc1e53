// Compares the speed of saving a checkpoint with a plain write and fsync of as many bytes, in turn, and
// measures how much slower training steps are during a save.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include <tandem/nn/safetensors.h>
#include <tandem/tandem.h>

#include "command_line.h"
#include "measure.h"
#include "temporary_directory.h"

namespace {

using namespace tandem;
using namespace tandem::engine;
namespace fs = std::filesystem;

constexpr std::int64_t kTensorFloats = 2'500'000;  // 10 MB

struct Options {
  std::string directory = fs::temp_directory_path();
  std::int64_t tensors = 50;
  int rounds = 5;
};

StateDict some_state(std::int64_t tensors) {
  StateDict state;
  for (std::int64_t i = 0; i < tensors; ++i)
    state.emplace(fmt::format("layer{}.weight", i),
                  Tensor::full({DType::f32, {kTensorFloats}}, 0.5 + static_cast<double>(i)));
  return state;
}

// Writes the same pieces as a checkpoint.
double plain_seconds(const std::string& path, const StateDict& state) {
  const double begin = steady_seconds();
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  bool fine = file >= 0;
  for (const auto& [name, tensor] : state)
    fine = fine && write(file, tensor.data(), static_cast<std::size_t>(tensor.type().bytes())) ==
                       tensor.type().bytes();
  if (!fine || fsync(file) != 0) throw Error(fmt::format("'{}' cannot be written", path));
  close(file);
  return steady_seconds() - begin;
}

std::vector<CheckpointFile> files_of(const StateDict& state) {
  return {{"model.safetensors", [&](const Sink& sink) { nn::write_safetensors(state, sink); }}};
}

void compare_speeds(const fs::path& folder, const StateDict& state, int rounds) {
  std::vector<double> plain, checkpoint;
  for (int round = 0; round < rounds; ++round) {
    plain.push_back(plain_seconds(folder / "plain", state));
    fs::remove(folder / "plain");
    const double begin = steady_seconds();
    CheckpointStore(folder / "store").save(round, files_of(state));
    checkpoint.push_back(steady_seconds() - begin);
    fs::remove_all(folder / "store");
  }
  const double disk = bench::median(plain), ours = bench::median(checkpoint);
  const double bytes = 4.0 * static_cast<double>(std::ssize(state) * kTensorFloats);
  fmt::print(
      "{:.0f} MB, medians of {} in turn: plain write and fsync {:.2f} s ({:.0f} MB/s), checkpoint {:.2f} s ({:.0f} MB/s): {:.0f} % of the disk's speed\n",
      bytes / 1e6, rounds, disk, bytes / 1e6 / disk, ours, bytes / 1e6 / ours, 100 * disk / ours);
}

struct Net : nn::Module {
  nn::Linear first{*this, "first", {.in = 512, .out = 1024}},
      second{*this, "second", {.in = 1024, .out = 1024}}, head{*this, "head", {.in = 1024, .out = 10}};
  Tensor forward(const Tensor& x) override { return head(relu(second(relu(first(x))))); }
};

// Steps on one thread, so that the writer has a core if there are two.
void compare_steps(const fs::path& folder, const StateDict& state, int rounds) {
  Net net;
  net.initialize(1);
  TrainStep step([&](const Tensors& batch) { return cross_entropy(net(batch[0]), batch[1]); }, net.state(),
                 {.strategy = {.threads = 1}});
  const Tensors data{Tensor::full({DType::f32, {64, 512}}, 0.1), Tensor::full({DType::i32, {64}}, 3)};
  const auto timed = [&] {
    const double begin = steady_seconds();
    step(data, 0.01);
    return steady_seconds() - begin;
  };
  for (int i = 0; i < 20; ++i) timed();
  std::vector<double> alone, beside;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 200; ++i) alone.push_back(timed());
    std::atomic<bool> failed = false;
    std::string why;
    CheckpointWriter writer(CheckpointStore(folder / "store"), [&](std::int64_t, const std::string& message) {
      why = message;
      failed = true;
    });
    writer.save(round, files_of(state));
    do beside.push_back(timed());
    while (!failed && !fs::exists(folder / "store" / checkpoint_name(round)));
    writer.wait();
    if (failed) throw Error(why);
    fs::remove_all(folder / "store");
  }
  const auto mean = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  };
  fmt::print(
      "a step on one thread: {:.3f} ms on average alone, {:.3f} ms during a save ({} steps): {:+.1f} %\n",
      1e3 * mean(alone), 1e3 * mean(beside), beside.size(), 100 * (mean(beside) / mean(alone) - 1));
}

void measure(const Options& options) {
  const testing::TemporaryDirectory folder(options.directory);
  const auto state = some_state(options.tensors);
  compare_speeds(folder.path(), state, options.rounds);
  compare_steps(folder.path(), state, options.rounds);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures how fast a checkpoint is saved, and how much slower training is meanwhile.",
               "bench_checkpoint"};
  Options options;
  app.option_defaults()->always_capture_default();
  app.add_option("directory", options.directory, "a directory on the disk to measure");
  app.add_option("--tensors", options.tensors, "number of tensors of 10 MB")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "number of measurements in turn; their median counts")
      ->check(CLI::PositiveNumber);
  return apps::run_program(app, argc, argv, [&] {
    prepare_teams(argv);
    measure(options);
  });
}
