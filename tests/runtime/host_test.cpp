// What a Session requests from its host, and what it delivers.
#include <algorithm>
#include <array>
#include <map>

#include <gtest/gtest.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/trace.h>
#include <tandem/core/runtime/host.h>
#include <tandem/core/runtime/session.h>
#include <tandem/dist/thread_comm.h>
#include <tandem/ops/pointwise.h>
#include <tandem/ops/reduce.h>
#include <tandem/plan/build.h>

#include "expect_error.h"
#include "one_weight.h"
#include "training_run.h"

namespace tandem::testing {
using namespace engine;
namespace {

TEST(Host, OfTwoFunctionsCallsBoth) {
  const auto fill = [](const HostInput&) {};
  const auto deliver = [](const HostResult&) {};
  expect_error([&] { FunctionHost({}, deliver); }, {"both of its functions"});
  expect_error([&] { FunctionHost(fill, {}); }, {"both of its functions"});
}

// Hosts know inputs by name, and may use another name than the Program.
TEST(Host, AnUnfilledInputIsNamed) {
  OneWeight model;
  Graph graph;
  {
    Trace trace(graph);
    trace.result("loss", sum(mul(model.w, trace.input("x", {DType::f32, {2}}))));
  }
  for (const std::string left_out : {"x", "lr"})
    for (const int value : {0, 0xff, 0x5a}) {  // the last two could be leftovers in memory
      FunctionHost host([&](const HostInput& in) {
        if (in.name != left_out) std::ranges::fill(in.bytes, static_cast<std::byte>(value));
      });
      Session session(build(graph, {}), {}, host);
      session.load({{"w", model.w}});
      expect_error([&] { session.run(0, 1); }, {"does not fill the input '" + left_out + "'"});
    }
}

// Each model's rate: NaN in one of them would pass for a value.
TEST(Host, AnInputFilledForOneModelOnlyIsNamed) {
  OneWeight model;
  Graph graph;
  {
    Trace trace(graph);
    trace.result("loss", sum(mul(model.w, trace.input("x", {DType::f32, {2}}))));
  }
  FunctionHost host([](const HostInput& in) { in.name == "x" ? in.fill(1) : in.set(0, 0.1); });
  Session session(build(graph, {.models = 2}), {}, host);
  session.load({{"w", Tensor::from({1, 2, 3, 4}, {2, 2})}});
  expect_error([&] { session.run(0, 1); }, {"does not fill the input 'lr' of f32[2]"});
}

// core/runtime/host.h guarantees it for every result.
TEST(Host, ResultsHaveAModelAxisEvenIfTheyUseNoModel) {
  OneWeight model;
  Graph graph;
  {
    Trace trace(graph);
    const Tensor x = trace.input("x", {DType::f32, {2}});
    trace.result("loss", sum(mul(model.w, x)));
    trace.result("mean", mean(x));
  }
  std::map<std::string, std::vector<double>> results;
  FunctionHost host([](const HostInput& in) { std::ranges::fill(in.as<float>(), 0.5F); },
                    [&](const HostResult& result) { results[result.name] = result.values(); });
  Session session(build(graph, {.models = 2}), {}, host);
  session.load({{"w", Tensor::from({1, 2, 3, 4}, {2, 2})}});
  session.run(0, 1);
  EXPECT_EQ((std::vector<double>{1.5, 3.5}), results.at("loss"));
  EXPECT_EQ((std::vector<double>{0.5, 0.5}), results.at("mean"));
}

TEST(Host, ATensorKnowsItsType) {
  std::array<float, 2> values{};
  const std::string name = "x";
  const TensorType type{DType::f32, {2}};
  const RankContext rank;
  const HostInput input{name, type, 0, 0, rank, std::as_writable_bytes(std::span(values))};
  input.as<float>()[0] = 3;
  input.set(1, 0.5);
  const HostResult result{name, type, 0, 0, rank, input.bytes};
  EXPECT_EQ((std::vector<double>{3, 0.5}), result.values());
  expect_error([&] { input.set(2, 1); }, {"'x'", "no element 2"});
  input.fill(4);
  EXPECT_EQ((std::vector<double>{4, 4}), result.values());
  expect_error([&] { input.as<std::int32_t>(); }, {"'x'", "f32[2]"});
  expect_error([&] { result.as<double>(); }, {"'x'", "f32[2]"});
}

TEST(Host, AFunctionHostRefusesMicrobatchesAndReplicas) {
  const Job job = small_residual_job();
  for (const bool replicas : {false, true}) {
    Strategy s;
    (replicas ? s.replicas : s.microbatches) = 2;
    FunctionHost host([](const HostInput& in) { std::ranges::fill(in.bytes, std::byte{0}); });
    Session session(program_of(job, s), thread_comms(s.ranks()), host);
    session.load(initial_state(job));
    expect_error([&] { session.run(0, 1); },
                 {replicas ? "a FunctionHost has one replica" : "a FunctionHost has one micro-batch"});
    expect_error([&] { session.run(0, 1); }, {replicas ? "make another Session" : "has one micro-batch"});
  }
}

}  // namespace
}  // namespace tandem::testing
