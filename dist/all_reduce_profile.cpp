#include <tandem/dist/all_reduce_profile.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

namespace tandem {
namespace {

using engine::JsonInput;

constexpr double kMostMs = 1e10, kMostBytes = 1e15, kMostRate = 1e15;
constexpr double kMostSpeed = 1;  // of a computation: no all-reduce makes it faster
constexpr int kMostThreads = 1'000'000, kMostRanks = 1'000'000;

std::vector<GradientLayer> layers_of(const JsonInput& j) {
  std::vector<GradientLayer> layers;
  double sum = 0;
  for (const JsonInput& item : j.required().items()) {
    item.require_keys({"name", "compute_ms", "gradient_bytes", "parameters"});
    GradientLayer& layer = layers.emplace_back();
    layer.name = item["name"].text(fmt::format("layer {}", layers.size() - 1));
    layer.compute_ms = item["compute_ms"].required().number(0, 0, kMostMs);
    layer.gradient_bytes = item["gradient_bytes"].required().number(0, 0, kMostBytes);
    layer.parameters = item["parameters"].texts();
    sum += layer.compute_ms;
  }
  if (!(sum > 0)) throw Error("\"layers\" must have some whose \"compute_ms\" is above 0");
  return layers;
}

ContentionModel::Curve curve_of(const JsonInput& j) {
  j.required().require_keys({"gamma1", "gamma2", "gamma3", "gamma4"});
  ContentionModel::Curve curve;
  curve.gamma1 = j["gamma1"].required().number(0, 0, kMostRate);
  curve.gamma2 = j["gamma2"].required().number(0, 0, kMostRate);
  curve.gamma3 = j["gamma3"].required().number(0, 0, kMostRate);
  curve.gamma4 = j["gamma4"].number(curve.gamma4, 0, 100);
  return curve;
}

ContentionModel model_of(const JsonInput& j) {
  j.require_keys({"alpha1", "alpha2", "overlapped", "alone"});
  return {j["alpha1"].required().number(0, 0, kMostSpeed), j["alpha2"].required().number(0, 0, 100),
          curve_of(j["overlapped"]), curve_of(j["alone"])};
}

std::vector<ThreadRates> table_of(const JsonInput& j) {
  std::vector<ThreadRates> table;
  for (const JsonInput& item : j.items()) {
    item.require_keys({"threads", "compute_rate", "overlapped", "alone"});
    constexpr double kLeast = 1e-9;  // above 0
    const int threads = item["threads"].required().integer(1, 1, kMostThreads);
    if (std::ranges::find(table, threads, &ThreadRates::threads) != table.end())
      throw Error(fmt::format("\"table\" has {} twice", counted(threads, "thread")));
    table.push_back({threads, item["compute_rate"].required().number(1, kLeast, kMostSpeed),
                     item["overlapped"].required().number(1, kLeast, kMostRate),
                     item["alone"].required().number(1, kLeast, kMostRate)});
  }
  if (table.empty()) throw Error("\"table\" has no entry");
  return table;
}

ThreadTable baseline_of(const JsonInput& j) {
  if (!j.is_array()) return {{}, j.integer(1, 1, kMostThreads)};
  ThreadTable table;
  for (const JsonInput& item : j.items()) {
    const auto row = item.items();
    if (row.size() != 2) throw Error("\"baseline_threads\": a row is [most bytes, threads]");
    const double bytes = row[0].number(0, 0, kMostBytes);
    if (!table.rows.empty() && bytes <= table.rows.back().most_bytes)
      throw Error("\"baseline_threads\": the bytes of the rows must rise");
    table.rows.push_back({bytes, row[1].integer(1, 1, kMostThreads)});
  }
  if (table.rows.empty()) throw Error("\"baseline_threads\" has no row");
  table.threads = table.rows.back().threads;
  return table;
}

AllReduceProfile profile_of(const JsonInput& j) {
  j.require_keys({"layers", "contention", "table", "baseline_threads", "hop_latency_ms", "forward_ms",
                  "batch_size", "source", "run"});
  AllReduceProfile p;
  p.layers = layers_of(j["layers"]);
  if (j["table"].present() == j["contention"].present())
    throw Error("there must be \"contention\" or \"table\", and not both");
  if (j["table"].present())
    p.contention = table_of(j["table"]);
  else
    p.contention = model_of(j["contention"]);
  if (j["baseline_threads"].present()) p.baseline = baseline_of(j["baseline_threads"]);
  p.hop_latency_ms = j["hop_latency_ms"].required().number(0, 0, kMostMs);
  p.forward_ms = j["forward_ms"].number(0, 0, kMostMs);
  p.batch_size = j["batch_size"].number(1, 1, 1e9);
  const JsonInput run = j["run"];
  if (run.present())
    run.require_keys({"ranks", "transport", "machines", "threads", "link", "collective", "settings",
                      "devices", "stages", "policy", "comm_threads", "measured_backward_ms", "error_of_fit",
                      "predicted_backward_ms", "groups"});
  p.ranks = run["ranks"].integer(0, 1, kMostRanks);
  for (const JsonInput& threads : run["comm_threads"].items())
    p.comm_threads.push_back(threads.integer(1, 1, kMostThreads));
  return p;
}

}  // namespace

double AllReduceProfile::compute_ms() const {
  double sum = 0;
  for (const GradientLayer& l : layers) sum += l.compute_ms;
  return sum;
}

std::string to_json(const AllReduceProfile& profile, const std::string& run) {
  using nlohmann::ordered_json;
  ordered_json j;
  for (const GradientLayer& l : profile.layers) {
    ordered_json layer{{"name", l.name}, {"compute_ms", l.compute_ms}, {"gradient_bytes", l.gradient_bytes}};
    if (!l.parameters.empty()) layer["parameters"] = l.parameters;
    j["layers"].push_back(layer);
  }
  if (const auto* model = profile.contention.model()) {
    const auto curve = [](const ContentionModel::Curve& c) {
      return ordered_json{
          {"gamma1", c.gamma1}, {"gamma2", c.gamma2}, {"gamma3", c.gamma3}, {"gamma4", c.gamma4}};
    };
    j["contention"] = {{"alpha1", model->alpha1},
                       {"alpha2", model->alpha2},
                       {"overlapped", curve(model->overlapped)},
                       {"alone", curve(model->alone)}};
  } else {
    for (const int threads : profile.contention.known_threads()) {
      const ThreadRates r = profile.contention.at(threads);
      j["table"].push_back({{"threads", r.threads},
                            {"compute_rate", r.compute_rate},
                            {"overlapped", r.overlapped},
                            {"alone", r.alone}});
    }
  }
  if (profile.baseline) {
    j["baseline_threads"] = profile.baseline->threads;
    if (!profile.baseline->rows.empty()) {
      j["baseline_threads"] = ordered_json::array();
      for (const ThreadTable::Row& row : profile.baseline->rows)
        j["baseline_threads"].push_back({row.most_bytes, row.threads});
    }
  }
  j["hop_latency_ms"] = profile.hop_latency_ms;
  j["forward_ms"] = profile.forward_ms;
  j["batch_size"] = profile.batch_size;
  if (!run.empty()) j["run"] = ordered_json::parse(run);
  return j.dump(1) + "\n";
}

AllReduceProfile all_reduce_profile_of(const std::string& what, const std::string& text) {
  try {
    return profile_of(JsonInput::parse(what, text));
  } catch (const Error& e) {
    const std::string message = e.what();
    throw Error(message.starts_with(what) ? message : fmt::format("{}: {}", what, message));
  }
}

AllReduceProfile read_all_reduce_profile(const std::string& file) {
  return all_reduce_profile_of(fmt::format("profile '{}'", file), engine::read_text("profile", file));
}

AllReduceProblem problem_of(const AllReduceProfile& profile, int ranks, const std::vector<int>& allocations) {
  std::vector<ThreadRates> choices;
  for (const int threads : allocations) choices.push_back(profile.contention.at(threads));
  AllReduceProblem problem{profile.layers, ring_costs(ranks, profile.hop_latency_ms, std::move(choices)), {}};
  const std::vector<int> known = profile.contention.known_threads();
  const ThreadTable baseline =
      profile.baseline.value_or(known.empty() ? nccl_threads(ranks) : ThreadTable{{}, known.front()});
  problem.baseline = [baseline, contention = profile.contention](double bytes) {
    return contention.at(baseline.at(bytes));
  };
  return problem;
}

}  // namespace tandem
