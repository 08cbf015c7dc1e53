#include "mu_two_measured.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/team.h>
#include <tandem/core/base/units.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/core/runtime/profile.h>
#include <tandem/core/runtime/session.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/nn/models/whole_networks.h>
#include <tandem/plan/build.h>

#include "claims.h"
#include "drawn_inputs.h"
#include "log.h"
#include "program_flops.h"

namespace tandem::apps {
using namespace engine;
namespace {

using Kind = Figure::Kind;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kA100Flops = 19.5e12, kA100LinkBytes = 32e9;  // the paper's device, and its link each way
constexpr int kModels = 4;                                     // of the figure of systems

// A network that this machine trains in a fraction of a second. `config` is as in transformers' config.json.
struct SmallNetwork {
  const char *title, *size;
  std::int64_t samples;
  nn::WholeNetwork (*make)(std::int64_t samples);
};

nn::WholeNetwork text_network(const char* name, std::int64_t samples, const char* config) {
  return nn::make_network(name, "text", samples, JsonInput::parse(name, config));
}

constexpr SmallNetwork kNetworks[] = {
    {"BERT", "4 layers of width 256, 4 texts of 128 words", 4,
     [](std::int64_t samples) {
       return text_network("bert_base", samples,
                           R"({"vocab_size": 2000, "hidden_size": 256, "intermediate_size": 1024,
                               "num_hidden_layers": 4, "num_attention_heads": 4})");
     }},
    {"GPT-2", "4 layers of width 256, 4 texts of 128 words", 4,
     [](std::int64_t samples) {
       return text_network("gpt2", samples,
                           R"({"vocab_size": 2000, "n_embd": 256, "n_layer": 4, "n_head": 4})");
     }},
    {"ViT", "4 layers of width 192, 4 images of 224×224", 4,
     [](std::int64_t samples) {
       return nn::make_network("vit_b_16", "imagenet", samples,
                               JsonInput::parse("vit", R"({"hidden_size": 192, "intermediate_size": 768,
                                                           "num_hidden_layers": 4, "num_attention_heads": 3})"));
     }},
    {"MobileNetV3", "as in the paper, 4 images", 4,
     [](std::int64_t samples) { return nn::make_network("mobilenet_v3_large", "imagenet", samples); }},
    {"ResNet-101", "as in the paper, 1 image", 1,
     [](std::int64_t samples) { return nn::make_network("resnet101", "imagenet", samples); }},
    {"DLRM", "tables of 1,000 rows of width 32, 512 clicks", 512, [](std::int64_t samples) {
       return nn::dlrm_network(
           {.rows = std::vector<std::int64_t>(26, 1000), .width = 32, .bottom = {128, 64}, .top = {256, 128}},
           samples);
     }}};

nn::WholeNetwork initialized(const SmallNetwork& network) {
  nn::WholeNetwork net = network.make(network.samples);
  net.module->initialize(1);
  return net;
}

// Several models of one network, in real training steps.
class Measured {
 public:
  Measured(const SmallNetwork& network, int rounds)
      : rounds_(rounds), net_(initialized(network)), host_(net_), forward_(nn::traced_loss(net_)) {}

  Strategy strategy(int models) const {
    return {.models = models, .optimizer = SgdOptions{.momentum = 0.9}, .threads = default_threads()};
  }
  Program program(const Strategy& s) const { return build(forward_, s); }

  // The median of some rounds of steps. A pair's batches overlap, so several run together.
  double step_ms(const Program& program, int models) {
    constexpr int kSteps = 3;
    Session session(program, thread_comms(1), host_, {});
    session.load(state(models));
    session.run(0, 1);
    const auto seconds = [&](int steps) {
      const double begin = steady_seconds();
      session.run(1, steps);
      return steady_seconds() - begin;
    };
    std::vector<double> ms;  // without what filling and draining a pair takes
    for (int i = 0; i < rounds_; ++i)
      ms.push_back((seconds(2 * kSteps) - seconds(kSteps)) * kMsPerSecond / kSteps);
    std::ranges::sort(ms);
    return (ms[(ms.size() - 1) / 2] + ms[ms.size() / 2]) / 2;
  }

  // The time of each kernel of the step without a memory plan.
  void profile(Strategy& s) {
    Profile profile;
    profile.measure(program(s), cpu_kernels(), host_, state(s.models));
    s.profile = std::make_shared<const Profile>(profile);
  }

 private:
  StateDict state(int models) const {
    return stack_states(std::vector(static_cast<std::size_t>(models), net_.module->state()));
  }

  const int rounds_;
  const nn::WholeNetwork net_;
  DrawnInputs host_;
  const Graph forward_;
};

// Nothing if no plan fits.
std::optional<Program> planned(const Measured& measured, const Strategy& s, const std::string& title) {
  try {
    return measured.program(s);
  } catch (const Error& e) {
    log_info(fmt::format("{} of {}: {}", s.memory_plan, title, e.what()));
    return std::nullopt;
  }
}

std::string sizes() {
  std::string text;
  for (const SmallNetwork& n : kNetworks)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", n.title, n.size);
  return text + ".";
}

}  // namespace

MuTwoMeasurement::MuTwoMeasurement(std::function<bool(const std::string& title)> wants,
                                   std::function<void(Figure)> add, std::vector<Claim>& claims, int rounds)
    : wants_(std::move(wants)), add_(std::move(add)), claims_(claims), rounds_(rounds) {}

void MuTwoMeasurement::fusion() {
  const std::vector<int> arrays{1, 2, 4};
  Panel time{"ms for each model and batch, over one model's", {}, {}}, memory{"MB", {}, {}};
  for (const int k : arrays) time.places.push_back(std::to_string(k));
  memory.places = time.places;
  std::vector<double> gains;
  for (const SmallNetwork& network : kNetworks) {
    if (!wants_(network.title)) continue;
    log_info(fmt::format("measures arrays of {}", network.title));
    Measured measured(network, rounds_);
    Series& ms = time.series.emplace_back(Series{network.title, {}});
    Series& mb = memory.series.emplace_back(Series{network.title, {}});
    double alone = 0;
    for (const int k : arrays) {
      const Program program = measured.program(measured.strategy(k));
      const double each = measured.step_ms(program, k) / k;
      if (k == 1) alone = each;
      ms.values.push_back(each / alone);
      mb.values.push_back(static_cast<double>(planned_peak(program)) / kBytesPerMb);
    }
    gains.push_back(1 / ms.values.back());
  }
  if (gains.empty()) return;
  add_(
      {"fig1-measured",
       "Fig. 1, measured: what fusing models saves in time, and needs in memory",
       fmt::format("Arrays of 1, 2 and 4 models, trained on this machine by all cores with SGD and momentum. "
                   "Medians of {} of three steps. ",
                   counted(rounds_, "round")) +
           sizes(),
       Kind::lines,
       "what",
       "models in the array",
       "network",
       "value",
       {std::move(time), std::move(memory)}});
  claims_.push_back(
      claim("measured: an array of four takes less time for each model than one model", "of all networks",
            std::ranges::min(gains) > 1,
            fmt::format("{:.2f} to {:.2f} times as fast", std::ranges::min(gains), std::ranges::max(gains)),
            "a core has no idle parts that fusing would fill, and larger arrays leave its caches"));
}

void MuTwoMeasurement::systems() {
  Panel speed{"speedup over HFTA", {}, {{"HFTA", {}}, {"HFTA-Capuchin", {}}, {"μ-TWO", {}}}},
      predicted{"predicted step, over the measured one", {}, {{"HFTA-Capuchin", {}}, {"μ-TWO", {}}}};
  std::vector<double> over_capuchin;
  for (const SmallNetwork& network : kNetworks) {
    if (!wants_(network.title)) continue;
    log_info(fmt::format("measures {} models of {}", kModels, network.title));
    Measured measured(network, rounds_);
    const Program half = measured.program(measured.strategy(kModels / 2));
    const double half_ms = measured.step_ms(half, kModels / 2), hfta = 2 * half_ms;
    const double slower = flops_of(half) / (half_ms / kMsPerSecond) / kA100Flops;
    for (Panel* p : {&speed, &predicted}) p->places.push_back(network.title);
    speed.series[0].values.push_back(1);
    std::vector<double> ms;
    for (const bool pair : {false, true}) {
      Strategy s = measured.strategy(kModels);
      if (pair) s.arrays = {kModels / 2, kModels / 2};
      measured.profile(s);
      s.memory_plan = pair ? "mu-two+" : "capuchin";
      s.memory_budget = half.memory[0].work + measured.program(measured.strategy(kModels)).memory[0].state;
      s.copy_link = {.bytes_per_ms = slower * kA100LinkBytes / kMsPerSecond};
      double plan_ms = kNone;
      ms.push_back(kNone);
      if (const std::optional<Program> program = planned(measured, s, network.title)) {
        plan_ms = simulated_batch_seconds(*program) * kMsPerSecond;
        ms.back() = measured.step_ms(*program, kModels);
      }
      speed.series[pair ? 2 : 1].values.push_back(hfta / ms.back());
      predicted.series[pair ? 1 : 0].values.push_back(plan_ms / ms.back());
    }
    if (!std::isnan(ms[0])) over_capuchin.push_back(std::isnan(ms[1]) ? 0 : ms[0] / ms[1]);
  }
  if (speed.places.empty()) return;
  add_({"fig8-measured",
        "Fig. 8, measured: four models with the memory for the activations of two",
        fmt::format(
            "Medians of {} of three steps on this machine. HFTA trains two arrays of two, one after the "
            "other; HFTA-Capuchin an array of four, and μ-TWO a pair of arrays of two. The memory holds the "
            "weights of all four, and what else an array of two needs. The link to the host is as much "
            "slower than the paper's as this machine computes slower than the A100. No value: no plan fits. ",
            counted(rounds_, "round")) +
            sizes(),
        Kind::bars,
        "what",
        "network",
        "system",
        "ratio",
        {std::move(speed), std::move(predicted)}});
  if (!over_capuchin.empty())
    claims_.push_back(claim("measured: μ-TWO is not behind HFTA-Capuchin", "in all cases",
                            std::ranges::min(over_capuchin) >= 1,
                            fmt::format("{:.2f} to {:.2f} times as fast", std::ranges::min(over_capuchin),
                                        std::ranges::max(over_capuchin)),
                            ""));
}

}  // namespace tandem::apps
