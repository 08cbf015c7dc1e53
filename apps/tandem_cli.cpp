// The `tandem` command: makes training data, inspects networks and Programs, and plans pipelines and
// all-reduces.
#include <atomic>
#include <csignal>
#include <initializer_list>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/contains.h>
#include <tandem/core/base/json_input.h>
#include <tandem/datasets/cifar_writer.h>
#include <tandem/engine.h>

#include "all_reduce_commands.h"
#include "command_line.h"
#include "lane_report.h"
#include "layers_command.h"
#include "log.h"
#include "memory_command.h"
#include "network_choice.h"
#include "output_file.h"
#include "pipeline_commands.h"
#include "pipeline_simulation.h"
#include "reproduce.h"
#include "weights_commands.h"

namespace {

using namespace tandem;
using namespace tandem::engine;

Program program_from(const std::string& file) {
  const std::string text = read_text("Program", file);
  try {
    Program program = planned(program_from_json(text));
    verify(program);
    return program;
  } catch (const Error& e) {
    throw Error(fmt::format("'{}': {}", file, e.what()));
  }
}

void simulate(const std::string& file, std::int64_t batches, const std::string& trace) {
  if (file.empty())
    throw Error("sim: give the file of a Program, all-reduce, or pipeline; see tandem sim --help");
  const Program program = program_from(file);
  apps::require_simulable("--batches", batches, program);
  apps::require_replaceable("--trace", trace, "trace");
  SimBackend sim(program);
  run(sim, batches);
  fmt::print("{} in {:.6g} s, {:.6g} s per batch\n", counted(batches, "batch"), sim.now(),
             sim.now() / static_cast<double>(batches));
  apps::print_lanes(sim);
  fmt::print("\n{}", to_text(sim.timeline(), 96));
  if (!trace.empty()) apps::write_json(trace, "trace", to_perfetto(sim.timeline()));
}

void show(const std::string& file) {
  const Program program = program_from(file);
  for (int d = 0; d < program.devices; ++d) {
    const DeviceMemory& m = program.memory[static_cast<std::size_t>(d)];
    fmt::print("device {}: work {} bytes (live peak {}), state {} bytes\n", d, m.work, m.live_peak, m.state);
  }
  for (const StateBlock& s : program.states)
    fmt::print("state {}: {}\n", s.path, counted(program.block(s.block).slots, "version"));
  fmt::print("verified: no race, no lost value, no deadlock\n");
}

void print_json(const std::string& network, const std::string& purpose,
                const std::vector<nn::ModuleSummary>& modules) {
  using nlohmann::ordered_json;
  const auto numbers = [](const nn::ModuleSummary& m) {
    return ordered_json{{"parameters", m.trained}, {"flops", m.flops}, {"activation_bytes", m.bytes}};
  };
  ordered_json j{{"network", network}, {"for", purpose}};
  j.update(numbers(nn::total(modules)));
  for (const nn::ModuleSummary& m : modules) {
    j["modules"].push_back({{"name", m.module}, {"output", to_string(m.output)}, {"buffers", m.kept}});
    j["modules"].back().update(numbers(m));
  }
  fmt::print("{}\n", j.dump(1));
}

// Without a purpose, of a network that train_cifar has, or of the only one of that name.
std::string summarized_purpose(const apps::NetworkChoice& choice) {
  const bool is_cifars = contains(nn::network_names("cifar"), choice.network);
  return choice.purpose.empty() && is_cifars ? "cifar" : apps::purpose_of(choice);
}

void summarize(const apps::NetworkChoice& choice, std::int64_t samples, bool json) {
  const std::string &network = choice.network, purpose = summarized_purpose(choice);
  const nn::WholeNetwork net = nn::make_network(network, purpose, samples);
  nn::fill_with_zeros(*net.module);
  std::vector<TensorType> types;
  std::vector<std::string> inputs;
  for (const nn::NetworkInput& input : net.inputs) {
    types.push_back(input.type);
    inputs.push_back(to_string(input.type));
  }
  const Graph forward = nn::traced_forward(net.forward, types);
  if (json) return print_json(network, purpose, nn::module_summaries(forward));
  fmt::print("{} for {}, on {}, forward\n\n{}", network, purpose, fmt::join(inputs, ", "),
             nn::summary(forward));
}

struct Arguments {
  std::string kind, directory, file, trace;
  apps::NetworkChoice summarized;
  std::int64_t train = 50'000, test = 10'000, batches = 20, samples = 1;
  std::uint64_t seed = 0;
  bool force = false, json = false;
  apps::AllReduceRequest planned, simulated;
  apps::PipelinePlanOptions planned_pipeline;
  apps::MemoryPlanOptions planned_memory;
  apps::PipelineSimulationOptions simulated_pipeline;
  apps::ReproduceOptions reproduced;
  apps::ForwardOptions forwarded;
  apps::ConvertOptions converted;
  apps::LayersOptions listed;
};

// What the help of a command ends with.
void add_examples(CLI::App& app) {
  struct Example {
    const char *command, *line, *page;
  };
  for (const auto& [command, line, page] : std::initializer_list<Example>{
           {"make-data", "tandem make-data cifar10 data", "training.md"},
           {"sim", "tandem sim docs/programs/dualpipe3.json --batches 8", "program.md"},
           {"sim all-reduce",
            "tandem sim all-reduce --profile resnet152 --policy se,horovod,libra --nodes 16,64",
            "data-parallel.md"},
           {"sim pipeline", "tandem sim pipeline --profile docs/programs/four-stages.json --microbatches 4",
            "pipelines.md"},
           {"plan all-reduce", "tandem plan all-reduce --profile resnet152 --nodes 8", "data-parallel.md"},
           {"plan pipeline",
            "tandem plan pipeline --profile docs/programs/layers.json --stages 4 --schedule dualpipe",
            "pipelines.md"},
           {"plan memory", "tandem plan memory --graph docs/programs/pair.json --limit 220MB --timeline",
            "memory.md"},
           {"reproduce libra", "tandem reproduce libra --output libra", "data-parallel.md"},
           {"reproduce dualpipe", "tandem reproduce dualpipe --output dualpipe --only fig6,fig8,fig10",
            "pipelines.md"},
           {"reproduce mu-two", "tandem reproduce mu-two --output mu-two --only fig3", "memory.md"},
           {"summary", "tandem summary resnet50 --for imagenet", "api.md"},
           {"layers", "tandem layers resnet50 --for imagenet -b 64 > layers.json", "pipelines.md"},
           {"verify", "tandem verify docs/programs/dualpipe3.json", "program.md"}}) {
    CLI::App* at = &app;
    std::istringstream words(command);
    for (std::string word; words >> word;) at = at->get_subcommand(word);
    at->footer(fmt::format("An example:\n  {}\nMore is in docs/{}.", line, page));
  }
  for (const char* several : {"plan", "reproduce"})
    app.get_subcommand(several)->footer("COMMAND --help says what a command takes.");
}

void add_commands(CLI::App& app, Arguments& a) {
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();  // also for the commands
  const std::string program = "Program as JSON (docs/program.md)";
  auto* make = app.add_subcommand("make-data", "writes drawn images in the binary format of a data set");
  make->add_option("kind", a.kind, "the format: cifar10")->required()->check(CLI::IsMember({"cifar10"}));
  make->add_option("directory", a.directory, "an empty or a new directory")->required();
  make->add_option("--train", a.train, "training images, a multiple of 5");
  make->add_option("--test", a.test, "test images");
  make->add_option("--seed", a.seed, "seed of the images; equal seeds give equal bytes");
  make->add_flag("--force", a.force, "replace CIFAR-10's files in the directory; others stay");
  auto* sim = app.add_subcommand(
      "sim",
      "predicts how a Program runs, and draws the timeline: forwards of batch b as digit b mod 10, "
      "backwards as letters (a: batch 0), updates *, all-reduces =, sends >, receives <, copies o i, timers -, idle dots");
  sim->add_option("file", a.file, program);
  sim->add_option("--batches", a.batches, "batches to run, from an empty to a drained pipeline");
  sim->add_option("--trace", a.trace, "write the timeline here, for ui.perfetto.dev");
  const std::string all_reduce = "all-reduces beside backward, from a profile of layers and rates";
  apps::add_simulation_options(*sim->add_subcommand("all-reduce", "predicts " + all_reduce), a.simulated);
  apps::add_pipeline_simulation_options(
      *sim->add_subcommand("pipeline", "predicts schedules of a pipeline from a profile of its stages"),
      a.simulated_pipeline);
  auto* plan = app.add_subcommand("plan", "plans a part of training");
  plan->require_subcommand(1);
  apps::add_plan_options(*plan->add_subcommand("all-reduce", "plans " + all_reduce), a.planned);
  apps::add_pipeline_plan_options(
      *plan->add_subcommand("pipeline", "cuts a network into stages, from a profile of its layers"),
      a.planned_pipeline);
  apps::add_memory_plan_options(
      *plan->add_subcommand("memory", "swaps and recomputes activations under a limit, from profiled graphs"),
      a.planned_memory);
  apps::add_papers(
      *app.add_subcommand("reproduce", "computes the figures of a paper, and compares them with the paper"),
      a.reproduced);
  auto* table =
      app.add_subcommand("summary", "prints a network's modules: outputs, parameters, operations, bytes");
  std::string networks;
  for (const std::string& purpose : nn::network_purposes())
    networks += fmt::format("{}{}: {}", networks.empty() ? "" : "\n", purpose,
                            fmt::join(nn::network_names(purpose), ", "));
  table->add_option("network", a.summarized.network, networks)->required();
  table
      ->add_option("--for", a.summarized.purpose,
                   "what it is trained on, in the size of its paper; without it, CIFAR if it can")
      ->check(CLI::IsMember(nn::network_purposes()));
  table->add_flag("--json", a.json, "print JSON");
  table->add_option("-b,--batch-size", a.samples, "number of samples")->check(CLI::Range(1, 1'000'000));
  apps::add_layers_options(
      *app.add_subcommand(
          "layers", "predicts the times of a network's layers, for plan pipeline: forward, backward, bytes"),
      a.listed);
  apps::add_forward_options(
      *app.add_subcommand("forward",
                          "runs a network on a batch of a file, and writes logits, loss, and gradients"),
      a.forwarded);
  apps::add_convert_options(
      *app.add_subcommand("convert-weights",
                          "rewrites weights with the names and layouts of another library"),
      a.converted);
  auto* check = app.add_subcommand(
      "verify", "plans a Program, proves it free of races and deadlocks, and prints the bytes it needs");
  check->add_option("file", a.file, program)->required();
  add_examples(app);
}

std::atomic<int> interrupting = 0;  // a signal

struct Interrupted : Error {
  Interrupted() : Error("interrupted") {}
};

// If it is interrupted, it leaves no unfinished files.
void make_data(const Arguments& a) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (std::signal(signal, [](int s) { interrupting = s; }) == SIG_IGN) std::signal(signal, SIG_IGN);
  const std::int64_t images = a.train + a.test;
  std::int64_t done = 0;
  const bool shown = apps::is_drawable();
  try {
    write_cifar10(a.directory, a.train, a.test, a.seed, a.force, [&] {
      if (interrupting) throw Interrupted();
      if (++done % 10'000 == 0 && shown) apps::draw_line(fmt::format("{} of {} images", done, images));
    });
  } catch (const Interrupted&) {
    apps::end_line();
    fmt::print(stderr, "tandem: interrupted; nothing was written\n");
  }
  if (interrupting) {  // ends as an uncaught signal would end it
    if (done == images) fmt::print(stderr, "tandem: interrupted; all images are in {}\n", a.directory);
    std::signal(interrupting, SIG_DFL);
    std::raise(interrupting);
  }
  if (shown && images >= 10'000) apps::end_line();
  fmt::print("{} training and {} test images are in {}; train with: train_cifar --data {}\n", a.train, a.test,
             a.directory, a.directory);
}

}  // namespace

int main(int argc, char** argv) {
  prepare_teams(argv);
  CLI::App app{"Makes training data, and inspects networks and Programs.", "tandem"};
  app.footer(
      "Networks are trained by train_cifar (train_cifar --help). An example, from data to a trained network:\n"
      "  tandem make-data cifar10 data\n"
      "  train_cifar --data data --arch resnet20 --epochs 3 --output run --trace\n"
      "COMMAND --help says what a command takes. The documentation begins with README.md; docs/ has a page for "
      "each subject.");
  Arguments a;
  add_commands(app, a);
  return apps::run_program(app, argc, argv, [&] {
    if (app.got_subcommand("make-data")) make_data(a);
    if (app.got_subcommand("plan")) {
      const auto* plan = app.get_subcommand("plan");
      if (plan->got_subcommand("pipeline"))
        apps::plan_pipeline(a.planned_pipeline);
      else if (plan->got_subcommand("memory"))
        apps::plan_memory(a.planned_memory);
      else
        apps::plan_all_reduces(a.planned);
    }
    if (app.got_subcommand("reproduce")) apps::reproduce(*app.get_subcommand("reproduce"), a.reproduced);
    if (app.got_subcommand("sim")) {
      const auto* sim = app.get_subcommand("sim");
      if (sim->got_subcommand("all-reduce"))
        apps::simulate_all_reduces(a.simulated);
      else if (sim->got_subcommand("pipeline"))
        apps::simulate_pipelines(a.simulated_pipeline);
      else
        simulate(a.file, a.batches, a.trace);
    }
    if (app.got_subcommand("summary")) summarize(a.summarized, a.samples, a.json);
    if (app.got_subcommand("layers")) apps::print_layers(a.listed);
    if (app.got_subcommand("forward")) apps::forward(a.forwarded);
    if (app.got_subcommand("convert-weights")) apps::convert_weights(a.converted);
    if (app.got_subcommand("verify")) show(a.file);
  });
}
