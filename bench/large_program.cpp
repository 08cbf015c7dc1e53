#include "large_program.h"

#include <fmt/format.h>

#include "program_builder.h"

namespace tandem::bench {
using namespace engine;
namespace {

constexpr int kGroup = 8;  // layers reduced together
constexpr std::int64_t kActivation = 256 << 10, kWeights = 64 << 10, kStatistics = 1 << 10;
std::size_t at(int i) { return static_cast<std::size_t>(i); }

// One stage: `layers` layers from `first` on.
class Stage {
 public:
  Stage(testing::ProgramBuilder& b, int k, int stages, int first, int layers)
      : b_(b), k_(k), stages_(stages), first_(first), layers_(at(layers)) {
    for (int l = 0; l < layers; ++l) {
      if (l % kGroup == 0)
        groups_.push_back(
            b.block(name("gradients", l), k, std::min(kGroup, layers - l) * (kWeights + kStatistics)));
      Layer& layer = layers_[at(l)];
      layer.weight = b.state(name("weight", l), k, kWeights);
      layer.momentum = b.state(name("momentum", l), k, kWeights);
      layer.scale = b.state(name("scale", l), k, kStatistics);
      layer.d_weight = b.part(name("d weight", l), groups_.back(), l % kGroup * kWeights, kWeights);
      const int in_group = std::min(kGroup, layers - l / kGroup * kGroup);
      layer.d_scale = b.part(name("d scale", l), groups_.back(),
                             in_group * kWeights + l % kGroup * kStatistics, kStatistics);
    }
  }

  MemberId forward(MemberId x) {
    const int age = 2 * stages_ - 1 - 2 * k_;
    for (int l = 0; l < size(); ++l) {
      Layer& layer = layers_[at(l)];
      layer.input = x;
      layer.y = value("y", l, kActivation);
      layer.statistics = value("statistics", l, kStatistics);
      compute("convolution", l, false, {x, b_.read(layer.weight, age)}, {layer.y});
      compute("statistics", l, false, {layer.y}, {layer.statistics});
      MemberId z = value("z", l, kActivation);
      compute("normalize", l, false, {layer.y, layer.statistics, b_.read(layer.scale, age)}, {z});
      if (l % 2 == 1) z = in_place("add skip", l, false, z, {layers_[at(l - 1)].input});
      x = layer.output = in_place("relu", l, false, z, {});
      if (parked(l)) {
        layer.host = b_.value(name("parked", l), k_, kActivation, Arena::host);
        b_.add({.name = name("copy out", l),
                .lane = b_.lane(k_, LaneKind::copy_out),
                .reads = {layer.y},
                .writes = {layer.host},
                .cost = {20e-6}});
      }
    }
    return x;
  }

  MemberId backward(MemberId d) {
    MemberId skip = -1;
    for (int l = size(); l-- > 0;) {
      Layer& layer = layers_[at(l)];
      MemberId y = layer.y;
      if (parked(l)) {
        y = value("y back", l, kActivation);
        b_.add({.name = name("copy in", l),
                .lane = b_.lane(k_, LaneKind::copy_in),
                .reads = {layer.host},
                .writes = {y},
                .cost = {20e-6}});
      }
      const MemberId d_relu = value("d relu", l, kActivation), d_y = value("d y", l, kActivation),
                     d_x = value("d x", l, kActivation);
      compute("relu'", l, true, {d, layer.output}, {d_relu});
      if (l % 2 == 1) skip = d_relu;
      compute("normalize'", l, true, {d_relu, y, layer.statistics, b_.read(layer.scale, 1)},
              {d_y, layer.d_scale});
      compute("convolution weight'", l, true, {layer.input, d_y}, {layer.d_weight});
      compute("convolution data'", l, true, {d_y, b_.read(layer.weight, 1)}, {d_x});
      d = d_x;
      if (l % 2 == 0 && skip >= 0) d = in_place("add skip'", l, true, d, {skip});
      if (l % kGroup == 0) reduce(l);
    }
    return d;
  }

  void update() {
    for (int l = size(); l-- > 0;) {
      const Layer& layer = layers_[at(l)];
      b_.add({.name = name("update", l),
              .lane = b_.lane(k_),
              .lag = lag(true),
              .reads = {layer.d_weight, b_.read(layer.weight, 1), b_.read(layer.momentum, 1)},
              .writes = {b_.assign(layer.weight), b_.assign(layer.momentum)},
              .cost = {5e-6},
              .in_place = true});
      b_.add({.name = name("update scale", l),
              .lane = b_.lane(k_),
              .lag = lag(true),
              .reads = {layer.d_scale, b_.read(layer.scale, 1)},
              .writes = {b_.assign(layer.scale)},
              .cost = {1e-6},
              .in_place = true});
    }
  }

  int lag(bool backward) const { return backward ? 2 * stages_ - 2 - k_ : k_; }

 private:
  struct Layer {
    BlockId weight, momentum, scale;
    MemberId input, y, statistics, output, host, d_weight, d_scale;
  };
  int size() const { return static_cast<int>(layers_.size()); }
  bool parked(int l) const { return stages_ == 1 && l % 4 == 0; }
  std::string name(const char* what, int l) const { return fmt::format("{} {}", what, first_ + l); }
  MemberId value(const char* what, int l, std::int64_t bytes) { return b_.value(name(what, l), k_, bytes); }

  void compute(const char* what, int l, bool backward, std::vector<MemberId> reads,
               std::vector<MemberId> writes) {
    b_.add({.name = name(what, l),
            .lane = b_.lane(k_, LaneKind::compute, backward && stages_ > 1 ? 1 : 0),
            .lag = lag(backward),
            .reads = std::move(reads),
            .writes = std::move(writes),
            .cost = {50e-6}});
  }
  MemberId in_place(const char* what, int l, bool backward, MemberId over, std::vector<MemberId> others) {
    const MemberId out = b_.over(name(what, l), over);
    others.insert(others.begin(), over);
    compute(what, l, backward, std::move(others), {out});
    b_.program().instructions.back().in_place = true;
    return out;
  }
  void reduce(int first) {
    Instruction s{.name = name("all-reduce", first),
                  .lane = b_.lane(k_, LaneKind::collective),
                  .lag = lag(true),
                  .channel = b_.new_channel(),
                  .cost = {300e-6, 0.8, 0.9},
                  .in_place = true};
    for (int l = first; l < std::min(first + kGroup, size()); ++l)
      for (MemberId* grad : {&layers_[at(l)].d_weight, &layers_[at(l)].d_scale}) {
        s.reads.push_back(*grad);
        s.writes.push_back(*grad = b_.over(name("reduced", l), *grad));
      }
    b_.add(std::move(s));
  }

  testing::ProgramBuilder& b_;
  int k_, stages_, first_;
  std::vector<Layer> layers_;
  std::vector<BlockId> groups_;
};

}  // namespace

Program training_step(int layers, int stages) {
  testing::ProgramBuilder b(stages);
  std::vector<Stage> parts;
  for (int k = 0; k < stages; ++k) parts.emplace_back(b, k, stages, k * (layers / stages), layers / stages);
  MemberId x = b.value("input", 0, kActivation);
  b.add({.name = "input", .lane = b.lane(0), .writes = {x}});
  const auto cross = [&](const std::string& name, MemberId value, int to, int lag) {
    const MemberId received = b.value(name + " received", to, kActivation);
    b.transfer(name, value, received, lag, 100e-6);
    return received;
  };
  for (int k = 0; k < stages; ++k) {
    x = parts[at(k)].forward(x);
    if (k + 1 < stages) x = cross(fmt::format("activation {}", k), x, k + 1, parts[at(k)].lag(false));
  }
  for (int k = stages; k-- > 0;) {
    x = parts[at(k)].backward(x);
    if (k > 0) x = cross(fmt::format("gradient {}", k), x, k - 1, parts[at(k)].lag(true));
  }
  for (auto& part : parts) part.update();
  return b.take();
}

}  // namespace tandem::bench
