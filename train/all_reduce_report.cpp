#include <tandem/train/all_reduce_report.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/json_input.h>

namespace tandem {
namespace {

using engine::JsonInput;

constexpr int kMost = 1'000'000;  // ranks, threads
constexpr int kMostStages = 1000;

bool same_gradients(const AllReduceProfile& a, const AllReduceProfile& b) {
  return std::ranges::equal(a.layers, b.layers, [](const GradientLayer& x, const GradientLayer& y) {
    return x.name == y.name && x.gradient_bytes == y.gradient_bytes;
  });
}

// As --link takes it; a file has no more digits.
std::string text_of(const LinkModel& link) { return link == LinkModel() ? "" : to_string(link); }

// What a run adds to the profile of its first stage.
JsonInput run_of(const std::string& file) {
  const JsonInput run =
      JsonInput::parse(fmt::format("'{}'", file), engine::read_text("profile", file))["run"];
  if (!run.present())
    throw Error(fmt::format("'{}' is a profile, but no training run measured it: it has no \"run\"", file));
  return run;
}

}  // namespace

std::string difference(const AllReduceReport& saved, const AllReduceReport& key) {
  if (saved.ranks != key.ranks)
    return fmt::format("it is of {}, not {}", counted(saved.ranks, "rank"), key.ranks);
  if (saved.transport.empty())
    return "an older version wrote it, which did not save whether ranks were threads or processes";
  if (saved.transport != key.transport)
    return fmt::format("its transport is {}, not {}", saved.transport, key.transport);
  if (saved.threads != key.threads)
    return fmt::format("it is of {} per rank, not {}", counted(saved.threads, "thread"), key.threads);
  if (text_of(saved.link) != text_of(key.link)) {
    const auto name = [](const LinkModel& l) { return l == LinkModel() ? "without limit" : text_of(l); };
    return fmt::format("its link is {}, not {}", name(saved.link), name(key.link));
  }
  if (saved.collective != key.collective)
    return fmt::format("its collective is {}, not {}", to_string(saved.collective),
                       to_string(key.collective));
  if (saved.stages.size() != key.stages.size())
    return fmt::format("it is of {}, not {}", counted(std::ssize(saved.stages), "stage"), key.stages.size());
  for (std::size_t s = 0; s < key.stages.size(); ++s)
    if (!same_gradients(saved.stages[s].profile, key.stages[s].profile))
      return "it is of a model with other gradients";
  for (std::size_t s = 0; s < key.stages.size(); ++s)
    if (const auto& was = saved.stages[s].profile, &is = key.stages[s].profile;
        !is.layers.empty() && was.batch_size != is.batch_size)
      return fmt::format("it is of {} samples per rank, not {}", was.batch_size, is.batch_size);
  return "";
}

std::string all_reduce_file(const std::string& file, std::size_t stage) {
  if (stage == 0) return file;
  std::filesystem::path path(file);
  return path.replace_filename(fmt::format("{}-{}{}", path.stem().string(), stage, path.extension().string()))
      .string();
}

std::string to_json(const AllReduceReport& report, std::size_t stage) {
  const StageAllReduces& s = report.stages.at(stage);
  nlohmann::ordered_json run{{"ranks", report.ranks},
                             {"transport", report.transport},
                             {"threads", report.threads},
                             {"link", text_of(report.link)},
                             {"collective", to_string(report.collective)},
                             {"stages", report.stages.size()},
                             {"policy", s.plan.policy},
                             {"comm_threads", s.profile.comm_threads},
                             {"measured_backward_ms", s.measured_ms},
                             {"error_of_fit", s.error_of_fit}};
  for (const auto& [policy, ms] : s.predicted) run["predicted_backward_ms"][policy] = ms;
  for (const AllReduceGroup& g : s.plan.groups) {
    nlohmann::ordered_json group{
        {"first_layer", g.first_layer}, {"last_layer", g.last_layer}, {"threads", g.rates.threads}};
    if (g.earliest_ms > 0) group["earliest_ms"] = g.earliest_ms;
    run["groups"].push_back(group);
  }
  return to_json(s.profile, run.dump());
}

bool holds_all_reduces(const std::string& file) {
  return JsonInput::parse(fmt::format("'{}'", file), engine::read_text("plan", file))["layers"].present();
}

AllReduceReport read_all_reduces(const std::string& file) {
  const JsonInput run = run_of(file);
  AllReduceReport report;
  report.ranks = run["ranks"].required().integer(1, 1, kMost);
  report.transport = run["transport"].text();
  report.threads = run["threads"].required().integer(1, 1, kMost);
  try {
    if (const std::string link = run["link"].text(); !link.empty()) report.link = parse_link(link);
    if (const std::string collective = run["collective"].text(); !collective.empty())
      report.collective = parse_collective(collective);
  } catch (const Error& e) {
    const std::string what = e.what(), name = fmt::format("'{}'", file);
    throw Error(what.starts_with(name) ? what : fmt::format("{}: \"run\": {}", name, what));
  }
  const int stages = run["stages"].integer(1, 1, kMostStages);
  for (std::size_t s = 0; s < static_cast<std::size_t>(stages); ++s) {
    // A stage may have no gradients to reduce; then it has no file.
    const std::string part = all_reduce_file(file, s);
    StageAllReduces& stage = report.stages.emplace_back();
    std::error_code none;
    if (s == 0 || std::filesystem::exists(part, none)) stage.profile = read_all_reduce_profile(part);
  }
  return report;
}

}  // namespace tandem
