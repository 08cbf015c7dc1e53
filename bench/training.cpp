#include "training.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace tandem::bench {
using namespace engine;

Graph traced(nn::Module& net, std::int64_t batch) {
  Graph graph;
  Trace trace(graph);
  const Tensor images = trace.input("images", {DType::f32, {batch, 32, 32, 3}}),
               labels = trace.input(kLabelsInput, {DType::i32, {batch}});
  trace.result(kLossResult, cross_entropy(net(images), labels));
  return graph;
}

DrawnHost::DrawnHost(std::int64_t batch)
    : images_(static_cast<std::size_t>(batch) * 32 * 32 * 3), labels_(static_cast<std::size_t>(batch)) {
  Loader loader(mapped(std::make_shared<MemoryDataset>(draw_cifar(batch, /*seed=*/0)),
                       {std::make_shared<Normalize>(kCifarMean, kCifarStd)}),
                {.batch_size = batch});
  loader.data(0, {0, batch}, std::as_writable_bytes(std::span(images_)));
  loader.labels(0, {0, batch}, labels_);
}

void DrawnHost::fill(const HostInput& in) {
  if (in.name == "images")
    std::memcpy(in.as<float>().data(), images_.data(), in.bytes.size());
  else if (in.name == kLabelsInput)
    std::ranges::copy(labels_, in.as<std::int32_t>().begin());
  else
    in.set(0, in.name == kSeedInput ? 1 : 1e-3);
}

std::vector<double> step_seconds(Session& session, int steps) {
  session.run(0, 2);
  session.timeline();
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) {
    const double begin = steady_seconds();
    session.run(2 + i, 1);
    seconds.push_back(steady_seconds() - begin);
  }
  std::ranges::sort(seconds);
  return seconds;
}

}  // namespace tandem::bench
