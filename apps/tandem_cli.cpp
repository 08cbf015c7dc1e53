// The `tandem` command: data to train on, and Programs to look at.
#include <cstdio>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <tandem/core/error.h>
#include <tandem/core/placement.h>
#include <tandem/core/program_json.h>
#include <tandem/core/sim_backend.h>
#include <tandem/core/verify.h>
#include <tandem/datasets/cifar_writer.h>

namespace {

using namespace tandem;

std::string read_file(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error(fmt::format("'{}' cannot be read", file));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Program program_from(const std::string& file) {
  Program program = planned(schedule_from_json(read_file(file)));
  verify(program);
  return program;
}

void simulate(const std::string& file, std::int64_t batches, const std::string& trace) {
  const Program program = program_from(file);
  SimBackend sim(program);
  run(sim, batches);
  fmt::print("{} batches in {:.6g} s, {:.6g} s a batch\n", batches, sim.now(),
             sim.now() / static_cast<double>(batches));
  for (std::size_t l = 0; l < program.lanes.size(); ++l)
    fmt::print("  {:<28} busy {:5.1f} %\n", name_of(program.lanes[l], program.devices),
               100 * sim.timeline().busy(static_cast<LaneId>(l)) / sim.now());
  fmt::print("\n{}", to_text(sim.timeline(), 96));
  if (trace.empty()) return;
  std::ofstream out(trace);
  out << to_perfetto(sim.timeline());
  if (!out.flush()) throw Error(fmt::format("'{}' cannot be written", trace));
}

void show(const std::string& file) {
  const Program program = program_from(file);
  for (int d = 0; d < program.devices; ++d) {
    const DeviceMemory& m = program.memory[static_cast<std::size_t>(d)];
    fmt::print("device {}: work {} bytes (live peak {}), state {} bytes\n", d, m.work, m.live_peak, m.state);
  }
  for (const StateBlock& s : program.states)
    fmt::print("state {}: {} versions\n", s.path, program.blocks[static_cast<std::size_t>(s.block)].slots);
  fmt::print("verified: no race, no lost value, no deadlock\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Tandem: data to train on, and Programs to look at"};
  app.require_subcommand(1);

  std::string kind, directory, file, trace;
  std::int64_t train = 50'000, test = 10'000, batches = 20;
  std::uint64_t seed = 0;
  bool force = false;
  auto* make = app.add_subcommand("make-data", "writes drawn images in the binary format of a data set");
  make->add_option("kind", kind, "cifar10")->required()->check(CLI::IsMember({"cifar10"}));
  make->add_option("directory", directory)->required();
  make->add_option("--train", train, "training images, a multiple of 5")->capture_default_str();
  make->add_option("--test", test, "test images")->capture_default_str();
  make->add_option("--seed", seed)->capture_default_str();
  make->add_flag("--force", force, "replace files of an earlier run");
  auto* sim = app.add_subcommand("sim", "predicts how a Program from a JSON file runs");
  sim->add_option("file", file)->required();
  sim->add_option("--batches", batches)->capture_default_str()->check(CLI::PositiveNumber);
  sim->add_option("--trace", trace, "write the timeline here, for ui.perfetto.dev");
  auto* check = app.add_subcommand(
      "verify", "plans a Program from a JSON file and proves it free of races and deadlocks");
  check->add_option("file", file)->required();

  CLI11_PARSE(app, argc, argv);
  try {
    if (*make) write_cifar10(directory, train, test, seed, force);
    if (*sim) simulate(file, batches, trace);
    if (*check) show(file);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "tandem: {}\n", e.what());
    return 1;
  }
}
