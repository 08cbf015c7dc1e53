#include <tandem/train/all_reduce_key.h>

#include <unistd.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/runtime/gather.h>
#include <tandem/pipeline/schedule_file.h>
#include <tandem/plan/build.h>

namespace tandem {

using namespace engine;

namespace {

bool same_gradients(const std::vector<GradientLayer>& a, const std::vector<GradientLayer>& b) {
  return std::ranges::equal(a, b, [](const GradientLayer& x, const GradientLayer& y) {
    return x.name == y.name && x.gradient_bytes == y.gradient_bytes;
  });
}

std::string text_of(const LinkModel& link) { return link == LinkModel() ? "without limit" : to_string(link); }

std::string listed(const std::vector<std::string>& parts) {
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string inputs_of(const Graph& forward) {
  std::vector<std::string> inputs;
  for (const Node& node : forward.nodes())
    if (const auto* input = as<InputOp>(node))
      inputs.push_back(fmt::format("{} {}", input->input, to_string(input->type)));
  std::ranges::sort(inputs);
  return listed(inputs);
}

std::string schedule_words(const Strategy& s) {
  if (s.own_schedule) return fmt::format("a file's, {:016x}", fnv1a(to_json(*s.own_schedule)));
  std::vector<std::string> parts{s.schedule};
  if (s.chunks > 1) parts.push_back(counted(s.chunks, "stage") + " per device");
  if (s.lockstep) parts.emplace_back("in lockstep");
  return listed(parts);
}

// The passes that change what is computed, and not what for.
std::string passes_of(const Strategy& s) {
  std::vector<std::string> passes;
  for (const auto& [is_on, name] :
       {std::pair(s.pool_first, "pool_first"), std::pair(s.fuse_epilogues, "fuse_epilogues"),
        std::pair(s.fuse_pointwise, "fuse_pointwise"), std::pair(s.recompute_cheap, "recompute_cheap")})
    if (is_on) passes.emplace_back(name);
  return listed(passes);
}

// Returns the host names of all ranks, in their order; on ranks other than `root`, nothing.
std::string machines_of(Comm& comm, int root) {
  std::array<char, 256> mine{};
  if (gethostname(mine.data(), mine.size() - 1) != 0) mine[0] = '?';
  std::vector<std::pair<std::string, int>> machines;  // names, and how many ranks there are one after another
  for (const auto& name : gather(comm, std::span<const char>(mine), root, kSessionChannel)) {
    if (machines.empty() || machines.back().first != name.data()) machines.emplace_back(name.data(), 0);
    ++machines.back().second;
  }
  std::string text;
  for (const auto& [name, ranks] : machines)
    text += fmt::format("{}{} × {}", text.empty() ? "" : ", ", name, ranks);
  return text;
}

}  // namespace

std::string difference(const AllReduceKey& saved, const AllReduceKey& key) {
  if (saved.ranks != key.ranks)
    return fmt::format("it is of {}, not {}", counted(saved.ranks, "rank"), key.ranks);
  if (saved.transport.empty())
    return "an older version wrote it, which did not save whether ranks were threads or processes";
  if (saved.transport != key.transport)
    return fmt::format("its transport is {}, not {}", saved.transport, key.transport);
  if (saved.threads != key.threads)
    return fmt::format("it is of {} per rank, not {}", counted(saved.threads, "thread"), key.threads);
  if (text_of(saved.link) != text_of(key.link))
    return fmt::format("its link is {}, not {}", text_of(saved.link), text_of(key.link));
  if (saved.collective != key.collective)
    return fmt::format("its collective is {}, not {}", to_string(saved.collective),
                       to_string(key.collective));
  if (saved.layers.size() != key.layers.size())
    return fmt::format("it is of {}, not {}", counted(std::ssize(saved.layers), "device"), key.layers.size());
  if (saved.batch_size != key.batch_size)
    return fmt::format("it is of {} samples per rank, not {}", saved.batch_size, key.batch_size);
  if (saved.settings.empty())
    return "an older version wrote it, which did not save what decides how backward computes";
  for (const auto& [name, is] : key.settings) {
    const auto found = saved.settings.find(name);
    const std::string was = found == saved.settings.end() ? "unknown" : found->second;
    if (was != is) return fmt::format("its {}: {}, not {}", name, was, is);
  }
  if (!std::ranges::equal(saved.layers, key.layers, same_gradients))
    return "it is of a model with other gradients";
  if (saved.machines != key.machines)
    return fmt::format("its machines are {}, not {}", saved.machines, key.machines);
  return "";
}

AllReduceKey all_reduce_key(const Graph& forward, const Strategy& s, double samples_per_rank, Comm* processes,
                            int root) {
  return {.ranks = s.replicas,
          .transport = processes ? "mpi" : "threads",
          .machines = processes ? machines_of(*processes, root) : "",
          .threads = s.threads,
          .link = s.link,
          .collective = s.collective,
          .settings = {{"inputs", inputs_of(forward)},
                       {"models", std::to_string(s.models)},
                       {"micro-batches", std::to_string(s.microbatches)},
                       {"schedule", schedule_words(s)},
                       {"cuts", listed(s.cuts)},
                       {"precision", s.amp ? std::string(name_of(*s.amp)) : "that of the model"},
                       {"recomputed activations", listed(s.recompute)},
                       {"swapped activations", listed(s.swap)},
                       {"passes", passes_of(s)},
                       {"kernels", s.kernels->backend()}},
          .batch_size = samples_per_rank,
          .layers = gradient_layers(forward, s)};
}

}  // namespace tandem
