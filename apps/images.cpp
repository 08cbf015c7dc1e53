// The README's whole training run: a small convolutional network learns to tell drawn images apart.
#include <cstdio>

#include <tandem/tandem.h>
using namespace tandem;

// Drawn in CIFAR-10's form; CifarDataset("data/cifar10", CifarSplit::train) reads the real ones.
DatasetPtr images(std::int64_t count, std::int64_t first) {
  return mapped(std::make_shared<MemoryDataset>(draw_cifar(count, /*seed=*/0, first)),
                {std::make_shared<Normalize>(kCifarMean, kCifarStd)});
}

int main() {
  nn::ConvNet net({.classes = 10});
  net.initialize(/*seed=*/1);
  Trainer trainer(net, std::make_shared<ShuffledDataset>(images(3000, 0), /*seed=*/1),
                  {.strategy = {.optimizer = SgdOptions{.momentum = 0.9}},
                   .batch_size = 64,
                   .epochs = 3,
                   .lr = {0.05},
                   .lr_schedule = [](RunLength run, double) { return cosine_lr(run.total); },
                   .test = images(500, kFirstDrawnTestIndex)});
  trainer.add({.end_epoch = [](const EpochResult& e) {
    std::printf("epoch %d  loss %.4f  test accuracy %.1f %%  %.0f images/s\n", static_cast<int>(e.epoch) + 1,
                e.loss[0], 100 * e.accuracy[0], e.samples_per_second);
  }});
  trainer.fit();
  nn::save_weights(net, "images.safetensors");
}
