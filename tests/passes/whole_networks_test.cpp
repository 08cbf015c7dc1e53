// The networks of the papers in their full sizes: how evenly they are cut.
#include <algorithm>

#include <gtest/gtest.h>

#include <tandem/nn/models/whole_networks.h>
#include <tandem/pipeline/stages.h>
#include <tandem/plan/network_layers.h>

namespace tandem::testing {
using namespace engine;
namespace {

// Without weights: the arrays are never read.
Graph traced(const nn::WholeNetwork& net) {
  StateDict zeros;
  for (const auto& [path, p] : net.module->named_parameters()) zeros[path] = Tensor::zeros(p->tensor.type());
  net.module->load(zeros);
  return nn::traced_loss(net);
}

struct Largest {
  double over_mean;          // its time over that of the mean stage
  int layers;                // between which it could be cut
  std::string first_module;  // the module that it begins with
};
Largest largest_stage(const Graph& forward, int stages) {
  const Strategy s{.stages = stages, .schedule = "pipedream"};
  const PartitionProblem problem = partition_problem(forward, possible_cuts(forward, stages), s);
  const Partition partition = best_partition(problem);
  const auto seconds = [](const PartitionedStage& stage) { return stage.forward + stage.backward; };
  double sum = 0;
  for (const PartitionedStage& stage : partition.stages) sum += seconds(stage);
  const PartitionedStage& most = *std::ranges::max_element(partition.stages, {}, seconds);
  return {seconds(most) * stages / sum, most.end - most.first,
          problem.layers[static_cast<std::size_t>(most.first)].name};
}

// GPT-2's product with all words is a stage by itself; so are a DLRM's tables.
TEST(WholeNetworks, AreCutEvenlyOrCannotBeCutFiner) {
  for (const std::string& purpose : nn::network_purposes())
    for (const std::string& name : nn::network_names(purpose)) {
      const bool of_cifar_alone = name.starts_with("mlp") || name == "convnet" || name == "resnet20" ||
                                  name == "resnet32" || name == "resnet56";
      if (of_cifar_alone) continue;
      const Graph forward = traced(nn::make_network(name, purpose, purpose == "clicks" ? 512 : 4));
      for (const int stages : {2, 4}) {
        const Largest largest = largest_stage(forward, stages);
        EXPECT_TRUE(largest.over_mean <= 1.25 || largest.layers == 1)
            << name << " for " << purpose << ": of " << stages << " stages, the one from '"
            << largest.first_module << "' takes " << largest.over_mean << " times the mean and has "
            << largest.layers << " layers";
      }
    }
}

}  // namespace
}  // namespace tandem::testing
