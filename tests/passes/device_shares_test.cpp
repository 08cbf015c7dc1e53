// Where the time of the devices of a simulated pipeline goes: times by hand.
#include <algorithm>

#include <gtest/gtest.h>

#include <tandem/pipeline/schedules.h>
#include <tandem/plan/pipeline_simulation.h>

#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

// The milliseconds of one period that all devices together spend.
struct Spent {
  double period, busy, transfer, transfer_idle, imbalance_idle;
};

void expect_spent(const Spent& expected, const StageProfile& profile, const PipelineSchedule& schedule) {
  const PipelineSimulation s = simulate_pipeline(profile, schedule, 40);
  const double all = s.period_ms * schedule.devices();
  EXPECT_NEAR(expected.period, s.period_ms, 1e-9);
  EXPECT_NEAR(expected.busy, s.shares.busy * all, 1e-9);
  EXPECT_NEAR(expected.transfer, s.shares.transfer * all, 1e-9);
  EXPECT_NEAR(expected.transfer_idle, s.shares.transfer_idle * all, 1e-9);
  EXPECT_NEAR(expected.imbalance_idle, s.shares.imbalance_idle * all, 1e-9);
}

// F and B of a micro-batch take so many ms, and so does a transfer between stages 1 and 2; transfers between
// stages 0 and 1 take no time.
StageProfile three_stages(int microbatches, double forward_ms, double backward_ms, double transfer_ms) {
  const double m = microbatches;
  const StageCost quick{m * forward_ms, m * backward_ms, 0, 40'000};
  StageProfile profile{.stages = {quick, quick, quick}, .link = {.bytes_per_ms = 1000}};
  profile.stages[1].activation_bytes = m * transfer_ms * 1000;
  return profile;
}

TEST(DeviceShares, OneDeviceComputesAllTheTime) {
  const StageProfile profile{.stages = {{1, 1.5, 4000, 40'000}}};
  expect_spent({2.5, 2.5, 0, 0, 0}, profile, make_schedule("plain", {}));
}

// F 0–1 on device 0, its bytes move 1–2, F 2–3 and B 3–4 on device 1, the gradient moves 4–5, B 5–6 on device
// 0. Device 0 waits for device 1 in 2–4, and device 1 for device 0 in 0–1 and 5–6.
TEST(DeviceShares, BytesThatMoveWhileADeviceWaitsAreTransfer) {
  StageProfile profile{.stages = {{1, 1, 4000, 40'000}, {1, 1, 0, 40'000}}};
  const PipelineSchedule plain = make_schedule("plain", {.stages = 2});
  expect_spent({4, 4, 0, 0, 4}, profile, plain);
  profile.link = {.bytes_per_ms = 4000};
  expect_spent({6, 4, 4, 0, 4}, profile, plain);
  profile.link.duplex = false;  // the two never meet
  expect_spent({6, 4, 4, 0, 4}, profile, plain);
}

// Units of dualpipe, from barrier to barrier: 2 ms and 2.5 ms, in turn. Device 0: F 0–1, whose bytes move
// 1–1.5; B 0–2 or 0.5–2.5. Device 1: F 0–1, B 1–2. Its gradient moves for 0.5 ms: in 2–2.5 of a long unit, and
// after a short one, in 0–0.5 of a long one, while both devices compute.
TEST(DeviceShares, BytesThatMoveWhileADeviceComputesAreNotTransfer) {
  const StageProfile profile{
      .stages = {{1, 2, 500, 40'000}, {1, 1, 0, 40'000}}, .link = {.bytes_per_ms = 1000}, .corun = 0.5};
  expect_spent({2.25, 2.25 + 2, 0.25, 0, 0}, profile,
               make_schedule("dualpipe", {.stages = 2, .lockstep = true}));
}

// gpipe, two micro-batches, F = B = 1, transfers of 3 ms between stages 1 and 2:
//   device 0: F 0–1, 1–2; B 14–15, 17–18. Device 1: F 1–2, 2–3; B 13–14, 16–17.
//   forwards move 2–5, 5–8 (the second is made at 3); device 2: F 5–6, 8–9; B 9–10, 10–11;
//   gradients move 10–13, 13–16 (the second is made at 11).
// Device 0 waits in 2–14 for a B that needs both F of device 2, and so in 3–5 for bytes that wait. In 15–17
// it needs a gradient, which moves. Devices 1 and 2 are idle while bytes move in 3–8, 10–13, 14–16 and
// 2–5, 6–8, 11–16, and otherwise in 0–1, 8–10, 17–18 and 0–2, 16–18.
TEST(DeviceShares, AFreeDeviceBehindAnotherOneWhoseBytesWaitIsTransferIdle) {
  expect_spent({18, 4 + 4 + 4, 10 + 10, 2, 12 + 4 + 4}, three_stages(2, 1, 1, 3),
               make_schedule("gpipe", {.stages = 3, .microbatches = 2}));
}

// Four micro-batches, all forward and then all back, but device 2 does its first B after its first F.
PipelineSchedule first_backward_early() {
  PipelineSchedule s{.stages = {{0}, {1}, {2}}, .tasks = {}};
  const auto add = [&](Phase phase, int stage, int first, int end) {
    for (int i = first; i < end; ++i) s.tasks.push_back({phase, stage, i});
  };
  add(Phase::forward, 0, 0, 4);
  add(Phase::forward, 1, 0, 4);
  add(Phase::forward, 2, 0, 1);
  add(Phase::backward, 2, 0, 1);
  add(Phase::forward, 2, 1, 4);
  add(Phase::backward, 2, 1, 4);
  add(Phase::backward, 1, 0, 4);
  add(Phase::backward, 0, 0, 4);
  for (int k = 0; k < 3; ++k) s.tasks.push_back({Phase::update, k});
  return s;
}

// F = 1, B = 0.5, transfers of 3 ms alone. Forwards are made at 2, 3, 4, 5; device 2 makes gradient 0 at 6.5.
// Duplex: forwards move 2–5, 5–8, 8–11, 11–14, gradient 0 moves 6.5–9.5, and device 0 does B 10–10.5. Its
// next B needs F 14–15 of device 2, and so in 10.5–11 the last forward, which waits. Gradients 1 to 3 are
// made at 15.5, 16, 16.5, and move 15.5–24.5; device 0: B 19–19.5, 22–22.5, 25–25.5.
//   Device 1 computes 1–5, 9.5–10, 18.5–19, 21.5–22, 24.5–25 while bytes move 2–14 and 15.5–24.5.
//   Device 2 computes 5–6.5, 8–9, 11–12, 14–16.5 meanwhile.
// Half duplex: forward 1 moves alone 5–6.5, then shares the link until 9.5; forward 2 shares it until
// gradient 0 has moved at 12.5, and ends at 14; forward 3 moves 14–17. Device 0 does B 13–13.5, and
// in 13.5–14 the last forward waits. Gradients 1 to 3 are made at 18.5, 19, 19.5, and move 18.5–27.5; device
// 0: B 22–22.5, 25–25.5, 28–28.5.
//   Device 1 computes 1–5, 12.5–13, 21.5–22, 24.5–25, 27.5–28 while bytes move 2–17 and 18.5–27.5.
//   Device 2 computes 5–6.5, 9.5–10.5, 14–15, 17–19.5 meanwhile.
TEST(DeviceShares, AFreeDeviceCanWaitForBytesThatWaitForEitherKindOfLink) {
  StageProfile profile = three_stages(4, 1, 0.5, 3);
  const double busy = 3 * 4 * 1.5;
  expect_spent({25.5, busy, (8.5 + 8) + (8.5 + 8), 0.5, 19 + 3 + 3}, profile, first_backward_early());
  profile.link.duplex = false;
  expect_spent({28.5, busy, (11.5 + 8) + (11.5 + 8), 0.5, 22 + 3 + 3}, profile, first_backward_early());
}

// dualpipe, two micro-batches, F = B = 1 (on stage 0: 0.25), transfers of 3 ms between stages 1 and 2, which
// are the bottleneck: units of 6 ms, from barrier to barrier. Forwards of the last unit move from −2 to 1 and
// 1–4, and gradients from −3 to 0 and 0–3.
//   Device 0: F 0–0.25, 0.25–0.5 beside B. Device 2: F 1–2, 4–5; B 2–3, 5–6.
//   Device 1: F 1–2, 4–5, where the F before has been sent; B 0–1, 3–4.
// So the second forward was made at −1, and waits for its link until 1. Device 0 waits at the barrier for
// device 2, and in 0.5–1 for these bytes. At the other devices, bytes always move.
// Half duplex: forwards and gradients always meet, so that all transfers and the unit take twice as long.
//   Device 1: F 4–5, 10–11; B 0–1, 6–7. Device 2: F 4–5, 10–11; B 5–6, 11–12.
// The second forward was made at −1, and waits for its link until 4.
TEST(DeviceShares, ADeviceAtABarrierCanWaitForBytesThatWaitForTheirLink) {
  StageProfile profile = three_stages(2, 1, 1, 3);
  profile.stages[0].forward_ms = profile.stages[0].backward_ms = 0.5;
  profile.corun = 0.5;
  const PipelineSchedule lockstep =
      make_schedule("dualpipe", {.stages = 3, .microbatches = 2, .lockstep = true});
  expect_spent({6, 0.5 + 4 + 4, 2 + 2, 0.5, 5}, profile, lockstep);
  profile.link.duplex = false;
  expect_spent({12, 0.5 + 4 + 4, 8 + 8, 3.5, 8}, profile, lockstep);
}

TEST(DeviceShares, AddUpToOne) {
  auto rng = generator("shares");
  int waited = 0;
  for (int i = 0; i < 40; ++i) {
    const int n = draw_int(rng, 1, 5);
    StageProfile profile{.corun = draw_real(rng, 0.5, 1)};
    for (int k = 0; k < n; ++k)
      profile.stages.push_back(
          {draw_real(rng, 0.5, 2), draw_real(rng, 0.5, 4), draw_real(rng, 0, 8000), 40'000});
    profile.link = {draw_real(rng, 500, 50'000), draw_real(rng, 0, 1), draw_bool(rng, 0.5)};
    for (const std::string& name : schedule_names()) {
      const PipelineSimulation s = simulate_pipeline(
          profile, make_schedule(name, {.stages = n, .microbatches = 2 * n, .lockstep = draw_bool(rng, 0.5)}),
          20);
      const DeviceShares& d = s.shares;
      EXPECT_NEAR(1, d.busy + d.transfer + d.transfer_idle + d.imbalance_idle, 1e-9) << name;
      EXPECT_GE(std::min({d.busy, d.transfer, d.transfer_idle, d.imbalance_idle}), 0) << name;
      waited += d.transfer_idle > 0;
    }
  }
  EXPECT_GT(waited, 3) << "of 400 simulations";
}

}  // namespace
}  // namespace tandem::testing
