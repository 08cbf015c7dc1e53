// Measures the cost of making batches: images per second of one core, by the CPU time of the thread that
// reads, and the time that is left for the calling thread if workers load ahead.
#include <algorithm>

#include <fmt/format.h>

#include <tandem/tandem.h>

#include "command_line.h"
#include "measure.h"

namespace tandem::bench {
using namespace engine;
namespace {

constexpr std::int64_t kImages = 10'000;
constexpr double kTarget = 20'000;  // images per second of one core

struct Cost {
  double cpu = 1e9, wall = 1e9;  ///< seconds per image, of the calling thread
};

/// Returns the cost of the cheapest epoch. The first epoch does not count, because it touches memory for the
/// first time.
Cost measure(Loader& loader, std::int64_t batch_size) {
  constexpr std::int64_t kEpochs = 8;
  const std::int64_t batches = loader.batches_per_epoch();
  std::vector<std::byte> data(static_cast<std::size_t>(batch_size * kCifarImageBytes) * sizeof(float));
  std::vector<std::int32_t> labels;
  loader.start(0, batches * kEpochs);
  Cost least;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const double cpu = thread_seconds(), wall = steady_seconds();
    for (std::int64_t b = epoch * batches; b < (epoch + 1) * batches; ++b)
      loader.data(b, {0, batch_size}, data);
    if (epoch == 0) continue;
    const auto images = static_cast<double>(batches * batch_size);
    least.cpu = std::min(least.cpu, (thread_seconds() - cpu) / images);
    least.wall = std::min(least.wall, (steady_seconds() - wall) / images);
  }
  return least;
}

void report(const std::string& what, const DatasetPtr& data, std::int64_t batch_size) {
  Loader loader(data, {.batch_size = batch_size, .drop_last = true});
  const double rate = 1 / measure(loader, batch_size).cpu;
  fmt::print("{:<52} {:>10.0f}  target {:.0f}  {}\n", what, rate, kTarget,
             rate >= kTarget ? "met" : "MISSED");
}

void report_workers(int workers, const DatasetPtr& data, std::int64_t batch_size) {
  Loader loader(data, {.batch_size = batch_size, .drop_last = true, .workers = workers, .labels = false});
  const Cost cost = measure(loader, batch_size);
  fmt::print("{:<52} {:>10.0f}  the calling thread takes {:.2f} us per image\n",
             fmt::format("crop, flip, normalize: {}, by the clock", counted(workers, "worker")),
             1 / cost.wall, 1e6 * cost.cpu);
}

void run(int workers, std::int64_t batch_size) {
  const auto images = std::make_shared<MemoryDataset>(DrawnDataset(kImages, 0));
  const auto crop = std::make_shared<RandomCrop>(0);
  const auto flip = std::make_shared<RandomFlip>(0);
  const auto normal = std::make_shared<Normalize>(kCifarMean, kCifarStd);
  const auto shuffled = [](DatasetPtr d) { return std::make_shared<ShuffledDataset>(std::move(d), 0); };
  const DatasetPtr augmented = shuffled(mapped(images, {crop, flip, normal}));
  fmt::print("images per second of one core, batches of {}\n", batch_size);
  report("normalize", shuffled(mapped(images, {normal})), batch_size);
  report("crop, flip, normalize, cutout",
         shuffled(mapped(images, {crop, flip, normal, std::make_shared<Cutout>(0)})), batch_size);
  report("crop, flip, normalize, mixup", std::make_shared<MixupDataset>(augmented, batch_size, 0.2, 0),
         batch_size);
  report("crop, flip, normalize", augmented, batch_size);
  for (int w = 0; w <= workers; ++w) report_workers(w, augmented, batch_size);
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  CLI::App app{"Measures the cost of making batches: reading, transforming, loading ahead.", "bench_loader"};
  int workers = tandem::default_threads();
  std::int64_t batch_size = 128;
  app.option_defaults()->always_capture_default();
  app.add_option("-j,--workers", workers, "most threads that load ahead")->check(CLI::NonNegativeNumber);
  app.add_option("-b,--batch-size", batch_size, "images in a batch")->check(CLI::Range(1, 10'000));
  return tandem::apps::run_program(app, argc, argv, [&] { tandem::bench::run(workers, batch_size); });
}
