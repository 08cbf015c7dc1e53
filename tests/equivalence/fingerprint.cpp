// Prints what must stay equal if a change is to change no result: for each of many configurations the
// structure of its Program, its planned and executed peaks, its losses and its checkpoint.
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/checksum.h>
#include <tandem/core/base/team.h>
#include <tandem/core/graph/state_dict.h>
#include <tandem/core/runtime/state_memory.h>
#include <tandem/engine.h>
#include <tandem/nn/models/networks.h>
#include <tandem/ops/over_models.h>

namespace tandem::testing {
using namespace engine;
namespace {

class Mix {
 public:
  void operator()(std::int64_t n) { bytes(&n, sizeof n); }
  void bytes(const void* p, std::size_t n) {
    const auto* b = static_cast<const unsigned char*>(p);
    for (std::size_t i = 0; i < n; ++i) h_ = (h_ ^ b[i]) * 0x100000001b3ULL;
  }
  std::uint64_t value() const { return h_; }

 private:
  std::uint64_t h_ = 0xcbf29ce484222325ULL;
};

// Hashes lanes, blocks, members, states and instructions of a Program, without ops and costs.
std::uint64_t structure(const Program& p) {
  Mix mix;
  for (auto n : {p.devices, p.replicas, p.microbatches, p.threads, p.max_lag}) mix(n);
  for (const Lane& l : p.lanes) mix(l.device), mix(int(l.kind)), mix(l.index);
  for (const MemoryBlock& b : p.blocks) {
    mix(b.device), mix(int(b.arena)), mix(b.bytes), mix(b.slots), mix(b.begin), mix(b.end);
    for (auto o : b.offsets) mix(o);
  }
  for (const Member& m : p.members) mix(m.block), mix(m.offset), mix(m.bytes), mix(m.shift);
  for (const StateBlock& s : p.states) mix(s.block), mix(s.trained), mix.bytes(s.path.data(), s.path.size());
  for (const Instruction& s : p.instructions) {
    mix(s.lane), mix(s.lag), mix(s.channel), mix(s.in_place), mix(s.barrier), mix(s.tag.microbatch),
        mix(std::int64_t(s.tag.rng_id));
    mix.bytes(s.tag.path.data(), s.tag.path.size());
    for (const TensorType& t : s.outputs) {
      mix(int(t.dtype));
      for (auto e : t.shape) mix(e);
    }
    for (const TensorType& t : s.inputs) {
      mix(int(t.dtype));
      for (auto e : t.shape) mix(e);
    }
    for (const Wait& w : s.waits) mix(w.instruction), mix(w.back);
    for (MemberId m : s.reads) mix(m);
    for (MemberId m : s.writes) mix(m);
  }
  for (const DeviceMemory& m : p.memory) mix(m.work), mix(m.state), mix(m.host), mix(m.live_peak);
  return mix.value();
}

struct Case {
  std::string name;
  std::string network;
  Strategy strategy;
  std::int64_t batch = 24, batches = 4;
  std::vector<double> lr{0.02};
  std::vector<std::uint64_t> seeds{1};
  bool f64 = false, fused = false;
};

void print(Case c) {
  const auto dtype = c.f64 ? DType::f64 : DType::f32;
  nn::DtypeScope scope(dtype);
  auto net = nn::make_network(c.network, 10);
  net->initialize(1);
  DatasetPtr data = mapped(std::make_shared<MemoryDataset>(draw_cifar(c.batch * 5 / 2, 0)),
                           {std::make_shared<Normalize>(kCifarMean, kCifarStd)});
  std::vector<StateDict> states;
  for (auto seed : c.seeds) {
    net->initialize(seed);
    states.push_back({});
    for (auto& [path, t] : net->state()) states.back().insert({path, t});
  }
  net->initialize(1);
  TrainerOptions o;
  o.strategy = c.strategy;
  o.strategy.models = int(c.seeds.size());
  if (c.fused) {
    std::vector<std::string> all;
    for (auto& [path, t] : net->state())
      if (path.ends_with("weight") || path.ends_with("bias")) all.push_back(path);
    o.strategy.fusion_groups = {{{all.begin(), all.begin() + 3}}, {{all.begin() + 4, all.end()}}};
  }
  o.batch_size = c.batch;
  o.epochs = 0;
  o.batches = c.batches;
  o.lr = c.lr;
  o.seeds = c.seeds;
  o.checkpoint_every = c.batches;
  Trainer trainer(*net, std::make_shared<ShuffledDataset>(data, 1), std::move(o));
  if (c.seeds.size() > 1) trainer.load(stack_states(states));
  std::string losses;
  std::uint64_t files = 0;
  trainer.add({.batch =
                   [&](const BatchResult& b) {
                     for (double l : b.loss) {
                       std::uint64_t bits;
                       std::memcpy(&bits, &l, 8);
                       losses += fmt::format(" {:x}", bits);
                     }
                   },
               .checkpoint =
                   [&](const CheckpointResult& r) {
                     Mix mix;
                     for (const auto& [path, t] : r.state) {
                       mix.bytes(path.data(), path.size());
                       mix.bytes(t.data(), std::size_t(t.type().bytes()));
                     }
                     files = mix.value();
                   }});
  trainer.fit();
  const Program& p = trainer.session().program();
  fmt::print("{:<28} program {:016x} instructions {} peak {} live {} executed {} state {:016x} losses{}\n",
             c.name, structure(p), p.instructions.size(), planned_peak(p), live_peak(p),
             trainer.session().executed_peak(), files, losses);
  std::fflush(stdout);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string net : {"mlp-residual", "convnet", "resnet20"}) {
    const bool deep = net == "resnet20";
    const auto add = [&](const std::string& what, Strategy s, auto change) {
      Case c{net + " " + what, net, std::move(s)};
      change(c);
      all.push_back(std::move(c));
    };
    const auto as_is = [](Case&) {};
    const SgdOptions sgd{.momentum = 0.9, .weight_decay = 1e-4};
    add("plain", {.optimizer = sgd}, as_is);
    add("two threads", {.optimizer = sgd, .threads = 2}, as_is);
    add("bf16", {.amp = DType::bf16, .optimizer = sgd}, as_is);
    add("4 micro-batches", {.microbatches = 4, .optimizer = sgd}, as_is);
    add("2 ranks", {.replicas = 2, .optimizer = sgd}, as_is);
    const std::string first = net == "mlp-residual" ? "block0" : net == "convnet" ? "" : "layer1.0";
    add("2 ranks bf16 clipped",
        {.replicas = 2,
         .amp = DType::bf16,
         .gradients = {.clip_norm = 1.0, .loss_scale = LossScale{}},
         .optimizer = sgd},
        as_is);
    add("gpipe 2x4", {.microbatches = 4, .stages = 2, .schedule = "gpipe", .optimizer = sgd}, as_is);
    add("1f1b 2x3 lockstep",
        {.microbatches = 3, .stages = 2, .schedule = "1f1b", .lockstep = true, .optimizer = sgd}, as_is);
    add("dualpipe 2", {.stages = 2, .schedule = "dualpipe"}, as_is);
    add("pipedream 3, 2 ranks", {.replicas = 2, .stages = deep ? 3 : 2, .schedule = "pipedream"}, as_is);
    add("2 models adam", {.optimizer = AdamOptions{}}, [](Case& c) {
      c.seeds = {1, 2};
      c.lr = {1e-3, 2e-3};
    });
    add("nothing fused",
        {.recompute_cheap = false,
         .pool_first = false,
         .fuse_epilogues = false,
         .fuse_pointwise = false,
         .optimizer = sgd},
        as_is);
    const std::string act = net == "mlp-residual" ? "block1" : net == "convnet" ? "" : "layer2.0";
    if (!act.empty()) {
      add("swap and recompute", {.swap = {first}, .recompute = {act}, .optimizer = sgd}, as_is);
    }
    add("2 ranks fused", {.replicas = 2, .optimizer = sgd}, [](Case& c) { c.fused = true; });
  }
  all.push_back({"mlp", "mlp", {.optimizer = SgdOptions{.momentum = 0.9}}});
  all.push_back({"vgg16", "vgg16", {.optimizer = SgdOptions{.momentum = 0.9}}, 16, 2});
  all.push_back({"snn 2 ranks", "snn", {.replicas = 2}, 16, 2});
  all.push_back({"resnet32 dualpipe 4", "resnet32", {.stages = 4, .schedule = "dualpipe"}, 12});
  all.push_back({"resnet56", "resnet56", {.threads = 2}, 12, 2});
  return all;
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) {
  using namespace tandem;
  prepare_teams(argv);
  (void)argc;
  for (auto& c : testing::cases()) testing::print(std::move(c));
}
