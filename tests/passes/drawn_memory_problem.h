#pragma once
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tandem/memory/memory_problem.h>

namespace tandem::testing {

// A chain of layers with shortcuts: each backward node reads what its layer and the one before made.
inline void add_graph(engine::MemoryProblem& p, int layers, std::mt19937_64& rng) {
  using namespace engine;
  using Kind = MemoryValue::Kind;
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(rng); };
  const auto value = [&](Kind kind, std::int64_t bytes) {
    p.values.push_back({static_cast<std::int64_t>(100 + p.values.size()), bytes, kind});
    return static_cast<int>(p.values.size()) - 1;
  };
  MemoryGraph g{"g" + std::to_string(p.graphs.size()), {}};
  const int input = value(Kind::input, draw(1, 20));
  std::vector<int> made{input}, weights, second;
  for (int i = 0; i < layers; ++i) {
    weights.push_back(value(Kind::parameter, 10));
    std::vector<int> in{made.back(), weights.back()};
    if (made.size() > 2 && draw(0, 3) == 0)
      in.push_back(made[static_cast<std::size_t>(draw(1, static_cast<int>(made.size()) - 2))]);
    const int out = value(Kind::intermediate, draw(5, 100));
    std::vector<int> outs{out};
    if (draw(0, 2) == 0)
      outs.push_back(value(Kind::intermediate, draw(1, 60)));  // backward reads it, or nothing
    second.push_back(outs.size() > 1 && draw(0, 2) > 0 ? outs[1] : -1);
    g.nodes.push_back(
        {"F" + std::to_string(i), Phase::forward, 0.1 * draw(1, 50), draw(0, 3) * 10, in, outs});
    made.push_back(out);
  }
  const int loss = value(Kind::output, 4);
  g.nodes.push_back({"loss", Phase::forward, 0.1, 0, {made.back()}, {loss}});
  int grad = value(Kind::intermediate, draw(5, 100));
  g.nodes.push_back({"dloss", Phase::backward, 0.1, 0, {made.back()}, {grad}});
  std::vector<int> grads;
  for (int i = layers - 1; i >= 0; --i) {
    const int before = value(Kind::intermediate, draw(5, 100)), of_weight = value(Kind::gradient, 10);
    std::vector<int> in{grad, made[static_cast<std::size_t>(i)], made[static_cast<std::size_t>(i) + 1],
                        weights[static_cast<std::size_t>(i)]};
    if (second[static_cast<std::size_t>(i)] >= 0) in.push_back(second[static_cast<std::size_t>(i)]);
    g.nodes.push_back({"B" + std::to_string(i),
                       Phase::backward,
                       0.1 * draw(1, 90),
                       draw(0, 3) * 10,
                       std::move(in),
                       {before, of_weight}});
    if (draw(0, 1) == 0) {  // some weights change at once, the others at the end
      g.nodes.push_back({"U" + std::to_string(i),
                         Phase::update,
                         0.1,
                         0,
                         {of_weight, weights[static_cast<std::size_t>(i)]},
                         {}});
      grad = before;
      continue;
    }
    grads.push_back(of_weight);
    grad = before;
  }
  g.nodes.push_back({"update", Phase::update, 0.2, 0, grads, {}});
  p.graphs.push_back(std::move(g));
}

inline engine::MemoryProblem drawn_problem(std::mt19937_64& rng, int graphs, int layers) {
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(rng); };
  engine::MemoryProblem p{
      .graphs = {}, .values = {}, .link = {0.5 * draw(5, 80), draw(0, 2) > 0}, .static_bytes = draw(0, 50)};
  for (int g = 0; g < graphs; ++g) add_graph(p, layers, rng);
  return p;
}

}  // namespace tandem::testing
