// Figs. 6 and 8: schedules as the simulator runs them.
#include <algorithm>

#include <fmt/format.h>

#include <tandem/pipeline/schedules.h>

#include "batch_way.h"
#include "claims.h"
#include "dualpipe_run.h"

namespace tandem::apps {
using namespace engine;
namespace {

constexpr int kStages = 3;             // of the paper's drawings
constexpr std::int64_t kFollowed = 5;  // the batch of Fig. 8
constexpr double kDrawnRatio = 2;      // of B to F, as in Fig. 6
constexpr std::int64_t kDrawnBatches = 9;

PipelineSimulation simulated(const PipelineSchedule& schedule, std::int64_t batches) {
  const StageCost stage{1, kDrawnRatio, 4, 4};
  return simulate_pipeline({.stages = std::vector<StageCost>(schedule.stages.size(), stage)}, schedule,
                           batches);
}

PipelineSchedule lockstep(const std::string& name) {
  return make_schedule(name, {.stages = kStages, .lockstep = true});
}

bool is_pass(const SimulatedOp& op) {
  return op.kind == SimulatedOp::Kind::forward || op.kind == SimulatedOp::Kind::backward;
}

Figure fig6() {
  Figure figure{
      "fig6",
      "Fig. 6: timelines of PipeDream and DualPipe",
      fmt::format("Three stages, B takes {} times as long as F. The number is the batch. Of DualPipe, "
                  "each stage has a row per compute lane; co-running gains nothing here (ρ = 1).",
                  kDrawnRatio),
      Figure::Kind::timeline,
      "schedule",
      "lane",
      "pass",
      "time, in forward passes",
      {}};
  for (const auto& [name, title] : {std::pair{"pipedream", "PipeDream"}, {"dualpipe", "DualPipe"}}) {
    const PipelineSchedule schedule = lockstep(name);
    Panel panel{title, {}, {}};
    for (const SimulatedOp& op : simulated(schedule, kDrawnBatches).ops) {
      if (!is_pass(op)) continue;
      const bool forward = op.kind == SimulatedOp::Kind::forward;
      const std::string row = schedule.compute_lanes() > 1
                                  ? fmt::format("GPU {} {}", op.stage, forward ? "F" : "B")
                                  : fmt::format("GPU {}", op.stage);
      panel.boxes.push_back(
          {row, forward ? "forward" : "backward", std::to_string(op.batch), op.start_ms, op.end_ms});
    }
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

struct Way {
  std::string title;
  std::vector<WayStep> steps;
};

std::vector<Way> ways() {
  const auto way = [](const std::string& title, const PipelineSchedule& schedule) {
    return Way{title, way_of_batch(schedule, simulated(schedule, 4 * kFollowed), kFollowed)};
  };
  return {way("(a) one GPU, plain", make_schedule("plain", {})), way("(b) dualpipe", lockstep("dualpipe")),
          way("(c) dualpipe-vs, with the earliest weights", lockstep("dualpipe-vs")),
          way("(d) spectrain", lockstep("spectrain"))};
}

Figure fig8(const std::vector<Way>& ways) {
  Figure figure{"fig8",
                "Fig. 8: the round trip of batch 5 and its weights",
                "Wt is what a stage has at the start of unit t; W5→9 is the prediction of W9 from W5. On the "
                "last stage, F and B are in one unit.",
                Figure::Kind::timeline,
                "schedule",
                "GPU",
                "pass",
                "time unit",
                {}};
  for (const Way& way : ways) {
    Panel panel{way.title, {}, {}};
    for (const WayStep& step : way.steps) {
      const bool shared = std::ranges::count_if(way.steps, [&](const WayStep& other) {
                            return other.unit == step.unit && other.stage == step.stage;
                          }) > 1;
      const auto unit = static_cast<double>(step.unit);
      const double begin = shared && !step.forward ? unit + 0.5 : unit;
      panel.boxes.push_back({fmt::format("GPU {}", step.stage), step.forward ? "forward" : "backward",
                             step.weights, begin, begin + (shared ? 0.5 : 1)});
    }
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

// The weights that the batch meets on its way, in the order of time.
std::string met(const Way& way) {
  std::string text;
  for (const WayStep& step : way.steps) text += (text.empty() ? "" : " ") + step.weights;
  return text;
}

}  // namespace

void add_schedules(const DualPipeRun&, Report& report) {
  const std::vector<Way> all = ways();
  report.figures.push_back(fig6());
  report.figures.push_back(fig8(all));
  const std::vector<std::string> paper{"W5 W5", "W5 W6 W7 W7 W8 W9", "W5 W5 W5 W5 W5 W5",
                                       "W5→9 W6→9 W7→9 W7→9 W8→9 W9"};
  for (std::size_t i = 0; i < all.size(); ++i)
    report.claims.push_back(claim("Fig. 8" + all[i].title + ": weights of batch 5 on its way", paper[i],
                                  met(all[i]) == paper[i], met(all[i]), ""));
}

}  // namespace tandem::apps
