// The simulator against the papers' formulas, against closed forms, and against execution.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/runtime/sim_backend.h>
#include <tandem/core/schedule/program_json.h>
#include <tandem/memory/placement.h>

#include "expect_error.h"
#include "program_builder.h"
#include "program_run.h"
#include "schedules.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

Timeline simulate(const Program& planned, std::int64_t batches) {
  SimBackend sim(planned);
  run(sim, batches);
  EXPECT_DOUBLE_EQ(sim.now(), sim.timeline().seconds());
  return sim.timeline();
}
double makespan(const Program& schedule, std::int64_t batches = 1) {
  return simulate(planned(schedule), batches).seconds();
}

const Span& span_of(const Timeline& t, const std::string& instruction, std::int64_t batch = 0) {
  for (const Span& s : t.spans)
    if (t.instruction_names[at(s.instruction)] == instruction && s.batch == batch) return s;
  throw Error(fmt::format("'{}' of batch {} did not run", instruction, batch));
}

// ---- LIBRA -----------------------------------------------------------------------------------------------

// LIBRA §III: K groups with computation b_i and communication c_i, which runs on r_i threads.
struct Overlap {
  double alpha1 = 1, alpha2 = 0, startup = 0;
  double p1 = 1, p2 = 0.5, p3 = 0.01;  // γ of p, overlapped
  double q1 = 2, q2 = 0.5, q3 = 0.01;  // γ of q, alone
  std::vector<double> b, c, r;

  double g(double size, double threads) const { return size / (alpha1 - alpha2 * threads); }  // Eq. (5)
  double p(double bytes, double threads) const {
    return bytes / (p1 - p2 * std::exp(-p3 * std::pow(threads, 0.6)));
  }  // Eq. (6)
  double q(double bytes, double threads) const {
    return bytes / (q1 - q2 * std::exp(-q3 * std::pow(threads, 0.6)));
  }
};

struct StageTime {
  double overlap, residual_b, residual_c;
};

// Eqs. (8)–(15): the durations of stages 0 … K.
std::vector<StageTime> libra_stages(const Overlap& m) {
  const std::size_t groups = m.b.size();
  const auto rest = [&](std::size_t from) {  // Σ b_j from group `from` on, counted from 0
    return std::accumulate(m.b.begin() + static_cast<std::ptrdiff_t>(std::min(from, groups)), m.b.end(), 0.0);
  };
  std::vector<StageTime> stages{{0, m.b[0], 0}};
  double s = rest(1);  // unfinished computation at the start of the stage
  for (std::size_t i = 0; i < groups; ++i) {
    const double c = m.c[i], r = m.r[i], a = m.startup;
    const double f_o = c == 0 || s == 0 ? 0 : std::min(m.p(c, r) + a, m.g(s, r));  // Eq. (8)
    const double delta_b = s == 0 ? 0 : 1 - f_o / m.g(s, r);                       // Eq. (9)
    const double delta_c = c == 0 ? 0 : 1 - f_o / (m.p(c, r) + a);                 // Eq. (10)
    const double f_b = s * delta_b, f_c = (m.q(c, r) + a) * delta_c;               // Eq. (11)
    const double t_b = std::max(0.0, f_b - rest(i + 2));                           // Eqs. (13), (14)
    stages.push_back({f_o, t_b, f_c});                                             // Eq. (12)
    s = f_b - t_b;                                                                 // Eq. (15)
  }
  return stages;
}

Program libra_schedule(const Overlap& m) {
  ProgramBuilder b;
  const LaneId compute = b.lane(0), collective = b.lane(0, LaneKind::collective);
  for (std::size_t i = 0; i < m.b.size(); ++i) {
    const MemberId grad = b.value(fmt::format("g{}", i), 0), sum = b.over(fmt::format("r{}", i), grad);
    b.add({.name = fmt::format("B{}", i), .lane = compute, .writes = {grad}, .cost = {m.b[i]}});
    const double alone = m.c[i] == 0 ? 0 : m.q(m.c[i], m.r[i]) + m.startup;
    const double beside = m.c[i] == 0 ? 1 : m.p(m.c[i], m.r[i]) + m.startup;
    b.add({.name = fmt::format("C{}", i),
           .lane = collective,
           .reads = {grad},
           .writes = {sum},
           .channel = b.new_channel(),
           .cost = {alone, alone > 0 ? alone / beside : 1, m.alpha1 - m.alpha2 * m.r[i]},
           .in_place = true});
  }
  return b.take();
}

Overlap draw_overlap(std::mt19937_64& rng) {
  Overlap m;
  m.alpha2 = draw_real(rng, 0, 4e-4);
  m.startup = draw_bool(rng, 0.2) ? 0 : draw_real(rng, 0, 0.5);
  m.p1 = draw_real(rng, 0.5, 2);
  m.p2 = m.p1 * draw_real(rng, 0.1, 0.95);
  m.p3 = draw_real(rng, 0.005, 0.2);
  m.q1 = m.p1 * draw_real(rng, 1, 3);
  m.q2 = m.p2;
  m.q3 = m.p3;
  constexpr double kThreads[] = {128, 256, 512, 1024, 2048};
  for (int i = draw_int(rng, 1, 12); i > 0; --i) {
    m.b.push_back(draw_bool(rng, 0.1) ? 0 : draw_real(rng, 0, 2));
    m.c.push_back(draw_bool(rng, 0.1) ? 0 : draw_real(rng, 0, 3));
    m.r.push_back(kThreads[draw_int(rng, 0, 4)]);
  }
  return m;
}

TEST(Libra, BackwardTimeFollowsTheStageRecursion) {
  auto rng = generator("libra");
  for (int i = 0; i < 3000; ++i) {
    SCOPED_TRACE(i);
    const Overlap m = draw_overlap(rng);
    const Timeline t = simulate(planned(libra_schedule(m)), 1);
    double begin = 0;
    const auto stages = libra_stages(m);
    for (std::size_t k = 0; k < stages.size(); ++k) {
      if (k > 0) {
        ASSERT_NEAR(span_of(t, fmt::format("C{}", k - 1)).begin, begin, 1e-9 * (1 + begin)) << "stage " << k;
      }
      begin += stages[k].overlap + stages[k].residual_b + stages[k].residual_c;
    }
    ASSERT_NEAR(t.seconds(), begin, 1e-9 * begin);
  }
}

// A communication takes 4 s alone and 6 s beside computations, which it slows to 3/4; 3 s of computation run
// beside it.
TEST(Libra, FullyOverlappedTasksTakeTheirOverlappedTime) {
  ProgramBuilder b;
  b.add({.name = "B", .lane = b.lane(0), .cost = {3}});
  b.add({.name = "C", .lane = b.lane(0, LaneKind::collective), .cost = {4, 4.0 / 6, 0.75}});
  const Timeline t = simulate(planned(b.take()), 1);
  EXPECT_DOUBLE_EQ(span_of(t, "B").end, 4) << "3 s at rate 3/4";
  EXPECT_DOUBLE_EQ(span_of(t, "C").end, 4 + (4 - 4 * (4.0 / 6))) << "4/6 of it run beside B, the rest alone";
}

TEST(CoRun, ConcurrentComputationsShareTheDevice) {
  for (const double rho : {0.5, 0.75, 1.0}) {
    ProgramBuilder b;
    b.program().corun = {rho};
    b.add({.name = "short", .lane = b.lane(0), .cost = {1}});
    b.add({.name = "long", .lane = b.lane(0, LaneKind::compute, 1), .cost = {3}});
    const Timeline t = simulate(planned(b.take()), 1);
    EXPECT_DOUBLE_EQ(span_of(t, "short").end, 2 * rho);
    EXPECT_DOUBLE_EQ(span_of(t, "long").end, 2 * rho + 2);
  }
}

// ---- pipelines -------------------------------------------------------------------------------------------

TEST(FlushSchedules, MakespanAndBubbleOfEqualStages) {
  auto rng = generator("flush");
  for (int n = 1; n <= 6; ++n)
    for (const int m : {1, 2, 3, 5, 8, 13})
      for (const auto schedule : {gpipe, one_f_one_b}) {
        const double f = draw_real(rng, 0.1, 2), b = draw_real(rng, 0.1, 4), expected = (m + n - 1) * (f + b);
        const Timeline t = simulate(planned(schedule(equal_stages(n, {.forward = f, .backward = b}, m))), 1);
        EXPECT_NEAR(t.seconds(), expected, 1e-9 * expected) << n << " stages, " << m << " micro-batches";
        for (std::size_t lane = 0; lane < t.lane_names.size(); ++lane)
          if (t.lane_names[lane].find("compute") != std::string::npos) {
            EXPECT_NEAR(1 - t.busy(static_cast<LaneId>(lane)) / t.seconds(), double(n - 1) / (m + n - 1),
                        1e-9);
          }
      }
}

TEST(GPipe, HopsAddToTheRampsOnly) {
  for (int n = 1; n <= 4; ++n) {
    Pipeline p = equal_stages(n, {.forward = 1, .backward = 2}, 6);
    p.hop = 0.25;
    EXPECT_NEAR(makespan(gpipe(p)), (6 + n - 1) * 3 + 2 * (n - 1) * 0.25, 1e-9) << n << " stages";
  }
}

// Seconds from one barrier to the next, unit by unit.
std::vector<double> ticks(const Timeline& t, const std::string& barrier, std::int64_t batches) {
  std::vector<double> result;
  double before = 0;
  for (std::int64_t b = 0; b < batches; ++b) {
    const double end = span_of(t, barrier, b).end;
    result.push_back(end - before);
    before = end;
  }
  return result;
}

// The duration of one unit of lockstep DualPipe: that of the slowest stage, with F and B at once except on
// the last stage.
double dualpipe_unit(const Pipeline& p, std::int64_t unit, std::int64_t batches) {
  const int n = p.size();
  double longest = 0;
  for (int k = 0; k < n; ++k) {
    const auto active = [&](std::int64_t lag) { return unit >= lag && unit - lag < batches; };
    const double f = active(k) ? p.stages[at(k)].forward : 0,
                 b = active(2 * n - 2 - k) ? p.stages[at(k)].backward : 0;
    longest = std::max(longest, k == n - 1 ? f + b : 2 * p.corun * std::min(f, b) + std::abs(f - b));
  }
  return longest;
}

TEST(DualPipe, LockstepUnits) {
  for (int n = 1; n <= 5; ++n)
    for (const double rho : {1.0, 0.8, 0.5}) {
      Pipeline p = equal_stages(n, {.forward = 1, .backward = 1.5});
      p.stages.back() = {.forward = 0.5, .backward = 0.75};
      p.corun = rho;
      p.barriers = true;
      const std::int64_t batches = 20;
      const Timeline t = simulate(planned(dualpipe(p)), batches);
      const auto units = ticks(t, "barrier 0", batches);
      double sum = 0;
      for (std::int64_t u = 0; u < batches + 2 * n - 2; ++u) {
        const double unit = dualpipe_unit(p, u, batches);
        if (u < batches) {
          EXPECT_NEAR(units[at(u)], unit, 1e-9) << "unit " << u << ", " << n << " stages";
        }
        sum += unit;
      }
      EXPECT_NEAR(t.seconds(), sum, 1e-9) << n << " stages, rho " << rho;
      const double steady = n == 1 ? 1.25 : 2 * rho * 1 + 0.5;
      EXPECT_NEAR(units.back(), steady, 1e-9) << "F + B at rho 1, max(F, B) at rho 1/2";
    }
}

TEST(DualPipe, EqualStagesHaveNoOverlapOnTheLastOne) {
  for (int n = 1; n <= 5; ++n)
    for (const double rho : {1.0, 0.5})
      for (bool barriers : {false, true}) {
        Pipeline p = equal_stages(n, {.forward = 1, .backward = 1.5});
        p.corun = rho;
        p.barriers = barriers;
        EXPECT_NEAR(makespan(dualpipe(p), 16), (16 + n - 1) * 2.5, 1e-9)
            << "F and B of the last stage belong to one batch";
      }
}

TEST(PipeDream, LockstepPeriodIsTwiceTheLonger) {
  auto rng = generator("pipedream");
  for (int n = 1; n <= 5; ++n) {
    Pipeline p = equal_stages(n, {.forward = draw_real(rng, 0.5, 2), .backward = draw_real(rng, 0.5, 2)});
    p.barriers = true;
    const double f = p.stages[0].forward, b = p.stages[0].backward;
    const auto units = ticks(simulate(planned(pipedream(p)), 20), "barrier 1 0", 20);
    for (std::int64_t u = n; u < 20; ++u)
      EXPECT_NEAR(units[at(u)], n == 1 ? f + b : 2 * std::max(f, b), 1e-9) << n << " stages, unit " << u;
  }
}

// Without barriers, balanced 1F1B with free hops has DualPipe's throughput if F and B gain nothing by running
// at once.
TEST(PipeDream, AsynchronousPeriodIsForwardPlusBackward) {
  for (int n = 1; n <= 5; ++n) {
    const Timeline t = simulate(planned(pipedream(equal_stages(n, {.forward = 1, .backward = 2}))), 40);
    EXPECT_NEAR(span_of(t, "U0", 39).end - span_of(t, "U0", 38).end, 3, 1e-9) << n;
  }
}

// ---- what the simulator promises -------------------------------------------------------------------------

TEST(Simulator, EndsOfATransferStartAndEndTogether) {
  ProgramBuilder b(2);
  const MemberId x = b.value("x", 0), y = b.value("y", 1);
  b.add({.name = "make", .lane = b.lane(0), .writes = {x}, .cost = {1}});
  b.transfer("x", x, y, 0, 2);
  b.instruction(1).cost.seconds = 0.5;  // the receiver's estimate is 2
  b.add({.name = "before", .lane = b.lane(1, LaneKind::compute), .cost = {3}});
  b.instruction(2).waits.push_back({3, 1});
  b.add({.name = "use", .lane = b.lane(1), .reads = {y}, .cost = {1}});
  const Timeline t = simulate(planned(b.take()), 1);
  EXPECT_DOUBLE_EQ(span_of(t, "send x").begin, 1);
  EXPECT_DOUBLE_EQ(span_of(t, "receive x").begin, 1);
  EXPECT_DOUBLE_EQ(span_of(t, "send x").end, 3);
  EXPECT_DOUBLE_EQ(span_of(t, "receive x").end, 3);
  EXPECT_DOUBLE_EQ(span_of(t, "use").begin, 3);
}

TEST(Simulator, TransferWaitsForBothEnds) {
  for (const double sender : {1.0, 5.0}) {
    ProgramBuilder b(2);
    const MemberId x = b.value("x", 0), y = b.value("y", 1);
    b.add({.name = "make", .lane = b.lane(0), .writes = {x}, .cost = {sender}});
    const InstructionId other = b.add({.name = "other", .lane = b.lane(1), .cost = {3}});
    b.transfer("x", x, y, 0, 1);
    b.instruction(3).waits.push_back({other, 0});
    const Timeline t = simulate(planned(b.take()), 1);
    EXPECT_DOUBLE_EQ(span_of(t, "send x").begin, std::max(sender, 3.0));
    EXPECT_DOUBLE_EQ(span_of(t, "receive x").begin, std::max(sender, 3.0));
  }
}

// In warm-up and drain a barrier without a batch delays no stage, in simulation and in execution.
TEST(Simulator, AnInactiveBarrierDoesNotWait) {
  ProgramBuilder b(2);
  const std::int64_t channel = b.new_channel();
  for (int k : {0, 1})
    b.add({.name = fmt::format("A{}", k), .lane = b.lane(k), .lag = 1, .cost = {k == 0 ? 1.0 : 5.0}});
  for (int k : {0, 1}) b.add({.name = fmt::format("barrier {}", k), .lane = b.lane(k), .channel = channel});
  b.add({.name = "last", .lane = b.lane(0), .lag = 1, .cost = {1}});
  const Timeline t = simulate(planned(b.take()), 1);
  EXPECT_DOUBLE_EQ(span_of(t, "last").begin, 1);
}

TEST(Simulator, IsDeterministic) {
  Pipeline p = equal_stages(4, {.forward = 0.3, .backward = 0.7, .update = 0.01});
  p.hop = 0.123;
  p.corun = 0.77;
  const Program plan = planned(spectrain(p));
  const auto same = [](const Span& a, const Span& b) {
    return a.lane == b.lane && a.instruction == b.instruction && a.unit == b.unit && a.batch == b.batch &&
           a.begin == b.begin && a.end == b.end;
  };
  const Timeline a = simulate(plan, 12), b = simulate(plan, 12),
                 c = simulate(planned(program_from_json(to_json(plan))), 12);
  EXPECT_TRUE(std::equal(a.spans.begin(), a.spans.end(), b.spans.begin(), b.spans.end(), same));
  EXPECT_TRUE(std::equal(a.spans.begin(), a.spans.end(), c.spans.begin(), c.spans.end(), same))
      << "read back from JSON";
}

TEST(Simulator, ConsecutiveRunsAddUp) {
  const Program plan = planned(dualpipe(equal_stages(3)));
  SimBackend sim(plan);
  run(sim, 5);
  const double first = sim.now();
  run(sim, 5);
  EXPECT_NEAR(sim.now(), 2 * first, 1e-9);
}

TEST(Timeline, PerfettoTraceHoldsEverySpanAndTheLiveBytes) {
  const Program plan =
      planned(dualpipe(equal_stages(2, {.forward = 0.5, .backward = 0.25, .activation = 1000})));
  const Timeline t = simulate(plan, 3);
  const auto events = nlohmann::json::parse(to_perfetto(t)).at("traceEvents");
  std::size_t spans = 0, counters = 0;
  for (const auto& e : events) {
    if (e.at("ph") == "X") {
      ++spans;
      if (e.at("name") == "F1" && e.at("args").at("batch") == 1) {
        EXPECT_EQ(e.at("pid"), 1);
        EXPECT_DOUBLE_EQ(e.at("ts"), span_of(t, "F1", 1).begin * 1e6);
        EXPECT_DOUBLE_EQ(e.at("dur"), 0.5e6);
        EXPECT_EQ(e.at("cat"), "forward");
      }
    } else if (e.at("ph") == "C") {
      ++counters;
      const std::size_t device = e.at("pid");
      const std::int64_t state = plan.memory[device].state;
      EXPECT_EQ(e.at("args").at("planned"), planned_peak(plan, static_cast<int>(device)));
      EXPECT_LE(e.at("args").at("live"), state + plan.memory[device].live_peak);
      EXPECT_GT(e.at("args").at("live"), state);
    }
  }
  EXPECT_EQ(spans, t.spans.size());
  EXPECT_EQ(counters, t.spans.size());
}

TEST(Simulator, RefusesADeadlockAndNamesWhatEachLaneStandsAt) {
  ProgramBuilder b(2);
  b.transfer("x", b.value("x", 0), b.value("y", 1), 0, 1);
  Program p = b.take();
  std::swap(p.instructions[0].lag, p.instructions[1].lag);
  p.instructions[1].lag = p.max_lag = 1;  // the other end never arrives while this one waits
  SimBackend sim(p);
  expect_error(
      [&] { run(sim, 1); },
      {"deadlock", "device 1 receive from 0: 'receive x' of unit 1 waits for its other end 'send x'"});
  ProgramBuilder crossed;
  for (const int lane : {0, 1})
    crossed.add({.name = fmt::format("F{}", lane), .lane = crossed.lane(0, LaneKind::compute, lane)});
  Program q = crossed.take();
  for (const int i : {0, 1}) q.instructions[i].waits = {{1 - i, 0}};
  SimBackend sim_crossed(q);
  expect_error([&] { run(sim_crossed, 1); },
               {"'F0' of unit 0 waits for 'F1' of unit 0", "'F1' of unit 0 waits for 'F0' of unit 0"});
}

// Of lanes, the whole order; between lanes and between devices, all that waits and transfers fix.
TEST(Simulator, OrderMatchesExecution) {
  for (int n = 1; n <= 4; ++n) {
    Pipeline one = equal_stages(n, {.forward = 0.1, .backward = 0.2}), many = one;
    many.microbatches = 5;
    one.corun = many.corun = 0.7;
    for (const Program& p : {planned(dualpipe(one)), planned(spectrain(one)), planned(pipedream(one)),
                             planned(double_buffered(many)), planned(one_f_one_b(many)),
                             planned(overlapped_all_reduce(one)), planned(mu_two(one))}) {
      CpuRun cpu(p, {.spans = 1000});
      cpu.run(9);
      const Timeline executed = cpu.timeline(), simulated = simulate(p, 9);
      EXPECT_EQ(lane_orders(executed), lane_orders(simulated));
      const FixedOrders e = expect_fixed_orders(p, executed), s = expect_fixed_orders(p, simulated);
      EXPECT_EQ(e.waits, s.waits);
      EXPECT_EQ(e.channels, s.channels);
      EXPECT_EQ(p.devices > 1, s.waits > 0 && s.channels > 0) << "stages wait for transfers";
    }
  }
}

}  // namespace
}  // namespace tandem::testing
