#include "schedules.h"

#include <fmt/format.h>

#include "program_builder.h"

namespace tandem::testing {
using namespace engine;
namespace {

// A model whose layers are listed one by one. Each F comes before its B or, by lag, after it.
class Layers {
 public:
  Layers(ProgramBuilder& b, const Pipeline& p, std::string prefix)
      : b_(b), p_(p), prefix_(std::move(prefix)) {
    for (int l = 0; l < p.size(); ++l) {
      weights_.push_back(b.state(name("w", l), 0, stage(l).weights));
      activations_.push_back(b.value(name("a", l), 0, stage(l).activation));
      grads_.push_back(b.value(name("g", l), 0, stage(l).weights));
      signals_.push_back(b.value(name("d", l), 0, p.boundary));
    }
  }
  MemberId activation(int l) const { return activations_[at(l)]; }
  MemberId grad(int l) const { return grads_[at(l)]; }
  bool last(int l) const { return l + 1 == p_.size(); }
  std::string name(const char* what, int l) const { return fmt::format("{}{}{}", what, prefix_, l); }

  void forward(int l, int lag) {
    Instruction f{.name = name("F", l),
                  .lane = b_.lane(0),
                  .lag = lag,
                  .reads = {b_.read(weights_[at(l)], 1)},
                  .writes = {activations_[at(l)]},
                  .cost = {stage(l).forward},
                  .tag = tag(Phase::forward, l)};
    if (l > 0) f.reads.push_back(activations_[at(l - 1)]);
    b_.add(std::move(f));
  }
  void backward(int l, int lag, MemberId saved) {
    Instruction s{.name = name("B", l),
                  .lane = b_.lane(0),
                  .lag = lag,
                  .reads = {saved, b_.read(weights_[at(l)], 1)},
                  .writes = {grads_[at(l)], signals_[at(l)]},
                  .cost = {stage(l).backward},
                  .tag = tag(Phase::backward, l)};
    if (!last(l)) s.reads.push_back(signals_[at(l + 1)]);
    b_.add(std::move(s));
  }
  void update(int l, int lag, MemberId grad) {
    b_.add({.name = name("U", l),
            .lane = b_.lane(0),
            .lag = lag,
            .reads = {grad, b_.read(weights_[at(l)], 1)},
            .writes = {b_.assign(weights_[at(l)])},
            .cost = {stage(l).update},
            .tag = tag(Phase::update, l),
            .in_place = true});
  }

 private:
  const Stage& stage(int l) const { return p_.stages[at(l)]; }
  Tag tag(Phase phase, int l) const { return {.phase = phase, .stage = l}; }
  ProgramBuilder& b_;
  const Pipeline& p_;
  std::string prefix_;
  std::vector<BlockId> weights_;
  std::vector<MemberId> activations_, grads_, signals_;
};

}  // namespace

Program overlapped_all_reduce(const Pipeline& p) {
  ProgramBuilder b;
  Layers model(b, p, "");
  std::vector<MemberId> reduced;
  for (int l = 0; l < p.size(); ++l) reduced.push_back(b.over(model.name("r", l), model.grad(l)));
  for (int l = 0; l < p.size(); ++l) {
    model.update(l, 1, reduced[at(l)]);
    model.forward(l, 0);
  }
  for (int l = p.size(); l-- > 0;) {
    model.backward(l, 0, model.activation(l));
    b.add({.name = model.name("R", l),
           .lane = b.lane(0, LaneKind::collective),
           .reads = {model.grad(l)},
           .writes = {reduced[at(l)]},
           .channel = b.new_channel(),
           .cost = {p.hop},
           .in_place = true});
  }
  return b.take();
}

namespace {

// One of μ-TWO's models. All activations except the last layer's are parked on the host.
class ParkedModel {
 public:
  ParkedModel(ProgramBuilder& b, const Pipeline& p, int number, int forward_lag)
      : b_(b), p_(p), layers_(b, p, fmt::format("{}.", number)), forward_lag_(forward_lag) {
    for (int l = 0; l + 1 < p.size(); ++l)
      parked_.push_back(b.value(layers_.name("h", l), 0, p.stages[at(l)].activation, Arena::host));
  }
  void forward(int l) {
    layers_.forward(l, forward_lag_);
    if (layers_.last(l)) return;
    b_.add({.name = layers_.name("out ", l),
            .lane = b_.lane(0, LaneKind::copy_out),
            .lag = forward_lag_,
            .reads = {layers_.activation(l)},
            .writes = {parked_[at(l)]},
            .cost = {p_.hop}});
  }
  void backward(int l) {
    MemberId saved = layers_.activation(l);
    if (!layers_.last(l)) {
      saved = b_.value(layers_.name("a'", l), 0, p_.stages[at(l)].activation);
      b_.add({.name = layers_.name("in ", l),
              .lane = b_.lane(0, LaneKind::copy_in),
              .lag = 1,
              .reads = {parked_[at(l)]},
              .writes = {saved},
              .cost = {p_.hop}});
    }
    layers_.backward(l, 1, saved);
    layers_.update(l, 1, layers_.grad(l));
  }

 private:
  ProgramBuilder& b_;
  const Pipeline& p_;
  Layers layers_;
  int forward_lag_;
  std::vector<MemberId> parked_;
};

}  // namespace

// List order: [B1 beside F2], [B2 beside F1]. B1 at the start of the next unit uses what F1 saves.
Program mu_two(const Pipeline& p) {
  ProgramBuilder b;
  ParkedModel first(b, p, 1, 0), second(b, p, 2, 1);
  for (int l = 0; l < p.size(); ++l) {
    first.backward(p.size() - 1 - l);
    second.forward(l);
  }
  for (int l = 0; l < p.size(); ++l) {
    second.backward(p.size() - 1 - l);
    first.forward(l);
  }
  return b.take();
}

}  // namespace tandem::testing
