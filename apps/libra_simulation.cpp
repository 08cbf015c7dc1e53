#include "libra_simulation.h"

#include <tandem/dist/backward_program.h>

#include "all_reduce_commands.h"
#include "shipped_profiles.h"

namespace tandem::apps {

const std::vector<LibraPolicy>& libra_policies() {
  static const std::vector<LibraPolicy> policies{{"se", "SE"},        {"horovod", "H-N"},
                                                 {"mg-wfbp", "MG-N"}, {"libra-m", "LIBRA-M"},
                                                 {"libra", "LIBRA"},  {"mg-cf", "MG-CF"}};
  return policies;
}

std::vector<LibraNetwork> libra_networks() {
  return {{"Xception", profile_named("xception")},
          {"ResNet152", profile_named("resnet152")},
          {"VGG16", profile_named("vgg16")},
          {"BERT-Base", profile_named("bert-base")}};
}

LibraOutcome libra_outcome(const AllReduceProfile& profile, const std::string& policy, int nodes,
                           int groups) {
  AllReduceProblem problem = problem_of(profile, nodes, kLibraAllocations);
  problem.limits.groups = groups;
  const AllReducePlan plan = all_reduce_policy(policy).plan(problem);
  LibraOutcome o;
  o.backward_ms = plan.predicted.backward_ms;
  o.compute_ms = plan.predicted.compute_ms;
  o.residual_ms = plan.predicted.residual_ms;
  o.all_reduce_ms = engine::simulate_backward(problem.layers, plan.groups, problem.costs).all_reduce_ms;
  o.iteration_ms = profile.forward_ms + o.backward_ms;
  o.samples_per_second = 1e3 * profile.batch_size / o.iteration_ms;
  o.normalized = (profile.forward_ms + profile.compute_ms()) / o.iteration_ms;
  return o;
}

AllReduceProfile with_baseline_threads(AllReduceProfile profile, int threads) {
  profile.baseline = ThreadTable{{}, threads};
  return profile;
}

AllReduceProfile with_batch(AllReduceProfile profile, double batch_size) {
  const double times = batch_size / profile.batch_size;
  for (GradientLayer& layer : profile.layers) layer.compute_ms *= times;
  profile.forward_ms *= times;
  profile.batch_size = batch_size;
  return profile;
}

LibraOutcomes libra_outcomes(const std::vector<LibraNetwork>& networks, int nodes) {
  LibraOutcomes outcomes;
  for (const LibraNetwork& network : networks) {
    auto& of_network = outcomes.emplace_back();
    for (const LibraPolicy& policy : libra_policies())
      of_network[policy.name] = libra_outcome(network.profile, policy.name, nodes);
  }
  return outcomes;
}

LibraResults simulate_libra() {
  LibraResults results;
  results.networks = libra_networks();
  results.paper_cluster = libra_outcomes(results.networks, kLibraNodes);
  for (int nodes = 16; nodes <= 2048; nodes *= 2)
    results.scaling[nodes] = libra_outcomes(results.networks, nodes);
  std::vector<LibraNetwork> many = results.networks;
  for (LibraNetwork& network : many) network.profile = with_baseline_threads(network.profile, 2048);
  results.many_threads = libra_outcomes(many, kLibraNodes);
  results.many_threads_and_nodes = libra_outcomes(many, 2048);
  return results;
}

}  // namespace tandem::apps
