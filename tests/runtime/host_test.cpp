// What a Session requests from its host, and what it delivers.
#include <algorithm>
#include <cstring>
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
  const auto fill = [](const std::string&, std::int64_t, std::span<std::byte>) {};
  const auto deliver = [](const std::string&, std::int64_t, std::span<const std::byte>) {};
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
      FunctionHost host(
          [&](const std::string& name, std::int64_t, std::span<std::byte> out) {
            if (name != left_out) std::memset(out.data(), value, out.size());
          },
          [](const std::string&, std::int64_t, std::span<const std::byte>) {});
      Session session(build(graph, {}), {}, host);
      session.load({{"w", model.w}});
      expect_error([&] { session.run(0, 1); }, {"does not fill the input '" + left_out + "'"});
    }
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
  std::map<std::string, std::vector<float>> results;
  FunctionHost host(
      [](const std::string&, std::int64_t, std::span<std::byte> out) {
        std::fill_n(reinterpret_cast<float*>(out.data()), out.size() / sizeof(float), 0.5F);
      },
      [&](const std::string& name, std::int64_t, std::span<const std::byte> value) {
        const auto* first = reinterpret_cast<const float*>(value.data());
        results[name].assign(first, first + value.size() / sizeof(float));
      });
  Session session(build(graph, {.models = 2}), {}, host);
  session.load({{"w", Tensor::from({1, 2, 3, 4}, {2, 2})}});
  session.run(0, 1);
  EXPECT_EQ((std::vector<float>{1.5F, 3.5F}), results.at("loss"));
  EXPECT_EQ((std::vector<float>{0.5F, 0.5F}), results.at("mean"));
}

TEST(Host, AFunctionHostRefusesMicrobatchesAndReplicas) {
  const Job job = small_residual_job();
  for (const bool replicas : {false, true}) {
    Strategy s;
    (replicas ? s.replicas : s.microbatches) = 2;
    FunctionHost host([](const std::string&, std::int64_t,
                         std::span<std::byte> out) { std::memset(out.data(), 0, out.size()); },
                      [](const std::string&, std::int64_t, std::span<const std::byte>) {});
    Session session(program_of(job, s), thread_comms(s.ranks()), host);
    session.load(initial_state(job));
    expect_error([&] { session.run(0, 1); },
                 {replicas ? "a FunctionHost has one replica" : "a FunctionHost has one micro-batch"});
    expect_error([&] { session.run(0, 1); }, {replicas ? "make another Session" : "its last run failed"});
  }
}

}  // namespace
}  // namespace tandem::testing
