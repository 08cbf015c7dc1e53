// The sentences of LIBRA's evaluation, and what the simulation says about each.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "claims.h"
#include "libra_simulation.h"

namespace tandem::apps {
namespace {

constexpr std::size_t kVgg = 2, kBert = 3;  // in libra_networks
using Value = double LibraOutcome::*;

// The change of a value from one policy to another, less 1, for each network.
std::vector<double> changes(const LibraOutcomes& outcomes, Value value, const char* from, const char* to) {
  std::vector<double> result;
  for (const auto& of_network : outcomes)
    result.push_back(of_network.at(to).*value / of_network.at(from).*value - 1);
  return result;
}

void add_fig1(const LibraResults& r, std::vector<Claim>& claims) {
  const double slowdown = fig1a_slowdown(r, 2048);
  claims.push_back({"Fig. 1a: computation with 2048 threads, over none", "+38.0 %",
                    percent({slowdown, slowdown}), Verdict::given, "α2 of the profiles is set from it."});
  claims.push_back(
      claim("Fig. 1b: backward with 2048 threads over 128, batch 8", -0.14, fig1b_change(r, 8),
            "γ3 of the profiles is set so that communication alone gets 14 % shorter. Start-ups stay, "
            "and computation gets longer."));
  claims.push_back(
      claim("the same, batch 64", 0.026, fig1b_change(r, 64),
            "It grows with the part of backward that has an all-reduce beside it. The paper does not "
            "say which layers it reduces together."));
}

void add_throughput(const LibraResults& r, std::vector<Claim>& claims) {
  const auto gain = [&](const char* from, const char* to) {
    return changes(r.paper_cluster, &LibraOutcome::samples_per_second, from, to);
  };
  const auto many = [&](const char* from, const char* to) {
    return changes(r.many_threads, &LibraOutcome::samples_per_second, from, to);
  };
  const auto if_many = [](Range range) {
    return fmt::format("If NCCL took 2048 threads, it would be {}.", percent(range));
  };
  const auto mean_claim = [&](const std::string& asked, double paper, const char* from, const char* to) {
    const double with_many = mean(many(from, to));
    return claim(asked, paper, mean(gain(from, to)), "As above. " + if_many({with_many, with_many}));
  };
  const std::string bound = fmt::format(
      "With NCCL's 512 threads, computation beside an all-reduce takes only {:.1f} % more time (α2), which bounds "
      "what fewer threads can gain. ",
      100 * fig1a_slowdown(r, 512));
  claims.push_back(
      claim("Fig. 6: throughput, LIBRA over SE", Range{0.113, 0.269}, range_of(gain("se", "libra")),
            "It grows with the share of communication in an iteration. Ours follows from published "
            "speeds of V100s and 128 tokens; the paper prints neither its times nor its tokens."));
  claims.push_back(claim("Fig. 6: LIBRA over H-N", Range{0.058, 0.138}, range_of(gain("horovod", "libra")),
                         bound + "Our Horovod does not wait for ranks to agree on what is computed. " +
                             if_many(range_of(many("horovod", "libra")))));
  claims.push_back(claim("Fig. 6: LIBRA over MG-N", Range{0.042, 0.062}, range_of(gain("mg-wfbp", "libra")),
                         bound + if_many(range_of(many("mg-wfbp", "libra")))));
  claims.push_back(mean_claim("Fig. 6: LIBRA-M over MG-N, mean", 0.041, "mg-wfbp", "libra-m"));
  claims.push_back(mean_claim("Fig. 6: MG-CF over MG-N, mean", 0.107, "mg-wfbp", "mg-cf"));
  claims.push_back(
      claim("Fig. 6: MG-CF over LIBRA, mean", 0.055, mean(gain("libra", "mg-cf")),
            "The paper fits all-reduces beside computation apart from those alone, but prints neither. "
            "Here both are equally fast, so that LIBRA comes near to MG-CF."));
}

void add_order(const LibraResults& r, std::vector<Claim>& claims) {
  std::vector<std::string> better;
  for (std::size_t n = 0; n < r.networks.size(); ++n)
    if (r.paper_cluster[n].at("libra").backward_ms < r.paper_cluster[n].at("libra-m").backward_ms)
      better.push_back(r.networks[n].title);
  const AllReduceProfile& bert = r.networks[kBert].profile;
  const double any = libra_outcome(bert, "libra", kLibraNodes, std::numeric_limits<int>::max()).backward_ms;
  claims.push_back(claim(
      "Fig. 6: LIBRA better than LIBRA-M", "on all four networks", better.size() == r.networks.size(),
      fmt::format("on {} of 4", better.size()),
      fmt::format(
          "BERT-Base: LIBRA-M has no limit of K = 10 groups: {:.1f} ms, and {:.1f} ms with LIBRA. Without "
          "that limit, LIBRA takes {:.1f} ms.",
          r.paper_cluster[kBert].at("libra-m").backward_ms, r.paper_cluster[kBert].at("libra").backward_ms,
          any)));
}

void add_breakdown(const LibraResults& r, std::vector<Claim>& claims) {
  const auto cut = [&](const char* from, const char* to) {
    return range_of(changes(r.paper_cluster, &LibraOutcome::backward_ms, from, to));
  };
  const auto excess = [&](const char* policy) {
    return mean(changes(r.paper_cluster, &LibraOutcome::backward_ms, "mg-cf", policy));
  };
  const auto residual = [&](const char* policy) {
    return mean(changes(r.paper_cluster, &LibraOutcome::residual_ms, "mg-wfbp", policy));
  };
  claims.push_back(claim("Fig. 7: backward time, LIBRA over SE", Range{-0.291, -0.121}, cut("se", "libra"),
                         "As for the throughput."));
  claims.push_back(claim("Fig. 7: LIBRA over H-N", Range{-0.204, -0.101}, cut("horovod", "libra"),
                         "As for the throughput."));
  claims.push_back(claim("Fig. 7: LIBRA over MG-N", Range{-0.13, -0.056}, cut("mg-wfbp", "libra"),
                         "As for the throughput."));
  claims.push_back(
      claim("Fig. 7: MG-N over MG-CF, mean", 0.225, excess("mg-wfbp"), "As for the throughput."));
  claims.push_back(claim("Fig. 7: LIBRA over MG-CF, mean", 0.109, excess("libra"), "As for the throughput."));
  const std::string why =
      "All-reduces of the convolutional networks end with backward; only that of its last layer, a few kilobytes, "
      "is left, and takes its start-up with any policy. In BERT-Base, the gradient of the word embeddings, 94 MB, is "
      "complete last.";
  claims.push_back(
      claim("Fig. 7: residual communication, LIBRA-M over MG-N, mean", -0.11, residual("libra-m"), why));
  claims.push_back(claim("Fig. 7: the same, LIBRA over MG-N, mean", -0.501, residual("libra"), "As above."));
  const double more =
      std::max(range_of(changes(r.paper_cluster, &LibraOutcome::compute_ms, "mg-wfbp", "libra-m")).most,
               range_of(changes(r.paper_cluster, &LibraOutcome::compute_ms, "mg-wfbp", "libra")).most);
  claims.push_back(claim("Fig. 7: computation of LIBRA-M and LIBRA over MG-N", "not more", more <= 1e-9,
                         fmt::format("{:+.1f} % at most", 100 * more),
                         "Their threads slow computation down more."));
}

// How far communication is from computation, in parts of the longer one, mean of the networks.
double imbalance(const LibraResults& r, const char* policy) {
  std::vector<double> parts;
  for (const auto& outcomes : r.paper_cluster) {
    const LibraOutcome& o = outcomes.at(policy);
    const auto [less, more] = std::minmax(o.compute_ms, o.all_reduce_ms);
    parts.push_back(1 - less / more);
  }
  return mean(parts);
}

void add_balance(const LibraResults& r, std::vector<Claim>& claims) {
  const double mg = imbalance(r, "mg-wfbp"), libra = imbalance(r, "libra");
  claims.push_back(
      claim("Fig. 8: computation and communication closer to each other with LIBRA than with MG-N", "yes",
            libra < mg,
            fmt::format("the shorter is {:.0f} % below the longer, mean ({:.0f} % with MG-N)", 100 * libra,
                        100 * mg),
            "Communication is the shorter one here, and LIBRA's fewer groups start up less often."));
}

void add_scaling(const LibraResults& r, std::vector<Claim>& claims) {
  const auto gain = [](const LibraOutcomes& of, const char* from) {
    return changes(of, &LibraOutcome::samples_per_second, from, "libra")[kVgg];
  };
  const LibraOutcomes &most = r.scaling.at(2048), &least = r.scaling.at(16);
  claims.push_back(
      claim("Fig. 9: VGG16 on 2048 nodes, LIBRA over H-N", 0.20, gain(most, "horovod"),
            fmt::format(
                "Our Horovod keeps its cycle of 5 ms, so that many all-reduces each start up for {:.1f} ms.",
                2.0 * 2047 * r.networks[kVgg].profile.hop_latency_ms)));
  const double many = gain(r.many_threads_and_nodes, "mg-wfbp");
  claims.push_back(claim(
      "Fig. 9: the same, LIBRA over MG-N", 0.21, gain(most, "mg-wfbp"),
      fmt::format("The bound above. If NCCL took 2048 threads, it would be {}.", percent({many, many}))));
  std::size_t points = 0, best = 0;
  double speedup = 0;
  for (const auto& [nodes, outcomes] : r.scaling)
    for (const auto& of : outcomes) {
      const double baseline =
          std::max({of.at("se").normalized, of.at("horovod").normalized, of.at("mg-wfbp").normalized});
      speedup = std::max(speedup, of.at("libra").normalized / baseline - 1);
      best += of.at("libra").normalized >= baseline ? 1 : 0;
      ++points;
    }
  claims.push_back(claim("Fig. 9: LIBRA better than SE, H-N and MG-N", "always", best == points,
                         fmt::format("at {} of {} points", best, points), "See the curves."));
  claims.push_back(
      claim("Abstract: speedup over the best baseline, up to", 0.2, speedup,
            "MG-WFBP's greedy reduces ever more layers together as the start-up grows, in the end all "
            "after backward. So it falls back to SE, where LIBRA keeps some groups."));
  const auto over_se = [](const LibraOutcomes& of) {
    return changes(of, &LibraOutcome::samples_per_second, "se", "libra");
  };
  std::vector<std::string> larger;
  for (std::size_t n = 0; n < r.networks.size(); ++n)
    if (over_se(most)[n] >= over_se(least)[n]) larger.push_back(r.networks[n].title);
  claims.push_back(
      claim("Fig. 9: gain of LIBRA over SE smaller on 2048 nodes than on 16", "on all four networks",
            larger.empty(), fmt::format("on {} of 4", r.networks.size() - larger.size()),
            fmt::format("Not on {}, whose backward is long enough to hide the start-ups as well.",
                        fmt::join(larger, ", "))));
}

}  // namespace

std::vector<Claim> libra_claims(const LibraResults& results) {
  std::vector<Claim> claims;
  add_fig1(results, claims);
  add_throughput(results, claims);
  add_order(results, claims);
  add_breakdown(results, claims);
  add_balance(results, claims);
  add_scaling(results, claims);
  return claims;
}

}  // namespace tandem::apps
