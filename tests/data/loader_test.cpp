// Batches are the same for any number of workers and ranks, and from any start; memory is bounded, and errors
// arrive.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tandem/datasets/loader.h>
#include <tandem/datasets/mixup_dataset.h>
#include <tandem/datasets/shuffled_dataset.h>
#include <tandem/datasets/skipping_dataset.h>
#include <tandem/datasets/subset_dataset.h>

#include "allocations.h"
#include "expect_error.h"
#include "numbered_dataset.h"
#include "seed.h"

namespace tandem::testing {
using namespace engine;
namespace {

using namespace std::chrono_literals;

DatasetPtr shuffled(std::int64_t size, std::set<std::int64_t> bad = {}) {
  return std::make_shared<ShuffledDataset>(std::make_shared<NumberedDataset>(size, std::move(bad)), 7);
}

/// The contents of some rows of a batch.
struct Taken {
  std::vector<float> data, weights;
  std::vector<std::int32_t> labels;
  bool operator==(const Taken&) const = default;
  Taken& operator+=(const Taken& more) {
    data.insert(data.end(), more.data.begin(), more.data.end());
    weights.insert(weights.end(), more.weights.begin(), more.weights.end());
    labels.insert(labels.end(), more.labels.begin(), more.labels.end());
    return *this;
  }
};

Taken take(Loader& loader, std::int64_t batch, Rows rows, int labels_per_sample = 1) {
  Taken t;
  const auto n = static_cast<std::size_t>(rows.count);
  t.data.resize(2 * n);
  t.labels.resize(n * static_cast<std::size_t>(labels_per_sample));
  t.weights.resize(t.labels.size());
  loader.data(batch, rows, std::as_writable_bytes(std::span(t.data)));
  loader.labels(batch, rows, t.labels);
  loader.weights(batch, rows, t.weights);
  return t;
}
Taken take(Loader& loader, std::int64_t batch, int labels_per_sample = 1) {
  return take(loader, batch, {0, loader.rows(batch)}, labels_per_sample);
}

/// Batches first … end-1, sample by sample, without a Loader.
std::vector<Taken> expected(const Dataset& data, std::int64_t batch_size, bool drop_last, std::int64_t first,
                            std::int64_t end) {
  std::vector<Taken> all;
  const std::int64_t per_epoch = (data.size() + (drop_last ? 0 : batch_size - 1)) / batch_size;
  for (std::int64_t b = first; b < end; ++b) {
    Taken batch;
    for (std::int64_t i = b % per_epoch * batch_size;
         i < std::min((b % per_epoch + 1) * batch_size, data.size()); ++i) {
      const Sample s = sample_of(data, b / per_epoch, i);
      float values[2];
      std::memcpy(values, s.data.data(), sizeof values);
      batch += {{values[0], values[1]}, s.weights.empty() ? std::vector{1.0f} : s.weights, s.labels};
    }
    all.push_back(batch);
  }
  return all;
}

/// Delays reading; counts the reads, and the readers at a time.
class Watched final : public DatasetAdapter {
 public:
  explicit Watched(DatasetPtr source, std::chrono::microseconds delay = 0us)
      : DatasetAdapter(std::move(source)), delay_(delay) {}
  void get(std::int64_t epoch, std::int64_t index, Sample& sample) const override {
    std::this_thread::sleep_for(delay_);
    DatasetAdapter::get(epoch, index, sample);
    ++reads;
    if (std::this_thread::get_id() == owner_) ++reads_of_owner;
  }
  mutable std::atomic<std::int64_t> reads{0}, reads_of_owner{0};

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  const std::chrono::microseconds delay_;
};

void wait_for(const std::atomic<std::int64_t>& counter, std::int64_t value) {
  while (counter.load() < value) std::this_thread::sleep_for(1ms);
}

TEST(Loader, GivesTheSameBatchesForAnyNumberOfWorkersThroughSeveralEpochs) {
  const DatasetPtr data = shuffled(50);
  for (const bool drop_last : {true, false}) {
    const std::int64_t batches = 3 * (drop_last ? 4 : 5) + 2;
    const auto want = expected(*data, 12, drop_last, 0, batches);
    for (const int workers : {0, 1, 4})
      for (const int buffers : {0, 1, 3}) {
        Loader loader(data,
                      {.batch_size = 12, .drop_last = drop_last, .workers = workers, .buffers = buffers});
        EXPECT_EQ(loader.batches_per_epoch(), drop_last ? 4 : 5);
        loader.start(0);
        for (std::int64_t b = 0; b < batches; ++b)
          ASSERT_EQ(take(loader, b), want[static_cast<std::size_t>(b)]) << workers << " workers, batch " << b;
      }
  }
}

TEST(Loader, KeepsAShortLastBatchUnlessToldToDropIt) {
  Loader loader(shuffled(10), {.batch_size = 4, .drop_last = false, .workers = 2});
  loader.start(0);
  std::multiset<std::int32_t> seen;
  for (std::int64_t b = 0; b < 3; ++b) {
    EXPECT_EQ(loader.rows(b), b == 2 ? 2 : 4);
    const Taken batch = take(loader, b);
    seen.insert(batch.labels.begin(), batch.labels.end());
  }
  EXPECT_EQ(seen, (std::multiset<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(loader.rows(5), 2);
  EXPECT_EQ(Loader(shuffled(10), {.batch_size = 4, .drop_last = true}).batches_per_epoch(), 2);
  EXPECT_EQ(Loader(shuffled(8), {.batch_size = 4, .drop_last = false}).rows(1), 4);
}

// Data, labels, and weights may be requested in any order: the calling thread reads no sample twice.
TEST(Loader, ReadsSamplesOfSeveralLabelsOnce) {
  const auto mixed = std::make_shared<MixupDataset>(shuffled(48), 12, 0.5, 1);
  constexpr int kParts = 3;
  for (const bool weights_first : {false, true}) {
    const auto watched = std::make_shared<Watched>(mixed);
    Loader loader(watched, {.batch_size = 12, .workers = 1, .buffers = 2});
    loader.start(0, 8);
    std::vector<std::byte> data(4 * 2 * sizeof(float));
    std::vector<std::int32_t> labels(4 * 2);
    std::vector<float> weights(4 * 2);
    for (std::int64_t b = 0; b < 8; ++b)
      for (int part = 0; part < kParts; ++part) {
        const Rows rows = share_of(12, 0, 1, part, kParts);
        if (weights_first) loader.weights(b, rows, weights);
        loader.data(b, rows, data);
        loader.labels(b, rows, labels);
        if (!weights_first) loader.weights(b, rows, weights);
        EXPECT_NEAR(1, weights[0] + weights[1], 1e-6);
      }
    EXPECT_EQ(8 * 12, watched->reads);
  }
}

/// All ranks and micro-batches as threads. They request images and labels at different times, as the stages
/// of a pipeline do.
void take_in_parts(Loader& loader, int replicas, int microbatches, std::vector<Taken>& batches) {
  std::vector<std::jthread> ranks;
  for (int r = 0; r < replicas; ++r)
    for (const bool images : {true, false})
      ranks.emplace_back([&, r, images] {
        for (std::int64_t b = 0; b < std::ssize(batches); ++b)
          for (int m = 0; m < microbatches; ++m) {
            Taken& batch = batches[static_cast<std::size_t>(b)];
            const Rows rows = share_of(loader.rows(b), r, replicas, m, microbatches);
            const auto at = static_cast<std::size_t>(rows.first), n = static_cast<std::size_t>(rows.count);
            if (images)
              loader.data(b, rows, std::as_writable_bytes(std::span(batch.data).subspan(2 * at, 2 * n)));
            else
              loader.labels(b, rows, std::span(batch.labels).subspan(at, n)),
                  loader.weights(b, rows, std::span(batch.weights).subspan(at, n));
          }
      });
}

TEST(Loader, SharesAGlobalBatchOverRanksAndMicroBatchesInTheSameOrder) {
  const DatasetPtr data = shuffled(40);
  constexpr std::int64_t kBatches = 17;
  const auto want = expected(*data, 12, true, 0, kBatches);
  for (const int workers : {0, 1, 4})
    for (const int replicas : {1, 2, 3})
      for (const int microbatches : {1, 2}) {
        Loader loader(data, {.batch_size = 12, .drop_last = true, .workers = workers, .buffers = 3});
        loader.start(0);
        std::vector<Taken> got(
            kBatches, {std::vector<float>(24), std::vector<float>(12), std::vector<std::int32_t>(12)});
        take_in_parts(loader, replicas, microbatches, got);
        EXPECT_EQ(got, want) << workers << ' ' << replicas << ' ' << microbatches;
      }
}

TEST(Loader, LoadsOnlyTheRowsOfItsReplica) {
  const auto watched = std::make_shared<Watched>(shuffled(36));
  const auto want = expected(*shuffled(36), 12, true, 0, 6);
  for (const int workers : {0, 2})
    for (int r = 0; r < 3; ++r) {
      watched->reads = 0;
      Loader loader(watched,
                    {.batch_size = 12, .drop_last = true, .workers = workers, .replica = r, .replicas = 3});
      loader.start(0, 6);
      for (std::int64_t b = 0; b < 6; ++b) {
        const auto& whole = want[static_cast<std::size_t>(b)].labels;
        EXPECT_EQ(take(loader, b, share_of(12, r, 3)).labels,
                  std::vector(whole.begin() + 4 * r, whole.begin() + 4 * (r + 1)));
      }
      EXPECT_EQ(watched->reads, 6 * 4);
      EXPECT_EQ(take(loader, 0, {0, 12}), want[0]);  // another replica's rows as well, on request
    }
}

TEST(Loader, StartsAnywhereAndContinuesAsAFullRun) {
  const DatasetPtr data = shuffled(50);
  const auto want = expected(*data, 12, false, 0, 30);
  for (const int workers : {0, 1, 4}) {
    Loader loader(data, {.batch_size = 12, .drop_last = false, .workers = workers});
    std::mt19937_64 random = generator("loader starts");
    for (int round = 0; round < 20; ++round) {
      const int first = draw_int(random, 0, 28), end = draw_int(random, first, 29);
      loader.start(first, end);
      for (int b = first; b < end && draw_bool(random, 0.9); ++b)
        ASSERT_EQ(take(loader, b), want[static_cast<std::size_t>(b)]) << first << ' ' << b;
    }
  }
}

TEST(Loader, GivesRequestedBatchesInAnyOrderAndRepeatedly) {
  const DatasetPtr data = shuffled(60);
  const auto want = expected(*data, 5, true, 0, 24);
  Loader loader(data, {.batch_size = 5, .workers = 2, .buffers = 3});
  std::mt19937_64 random = generator("any order");
  for (int round = 0; round < 300; ++round) {
    if (round == 100) loader.start(0, 20);
    const int b = draw_int(random, 0, 23), first = draw_int(random, 0, 4),
              count = draw_int(random, 0, 5 - first);
    const auto& labels = want[static_cast<std::size_t>(b)].labels;
    ASSERT_EQ(take(loader, b, {first, count}).labels,
              std::vector(labels.begin() + first, labels.begin() + first + count));
  }
}

TEST(Loader, RequestsDoNotWaitForEachOther) {
  // Labels lag behind by more batches than there are buffers.
  constexpr std::int64_t kBatches = 20, kLag = 6;
  const auto want = expected(*shuffled(40), 4, true, 0, kBatches);
  Loader loader(shuffled(40), {.batch_size = 4, .workers = 2, .buffers = 3});
  loader.start(0, kBatches);
  for (std::int64_t b = 0; b < kBatches + kLag; ++b) {
    std::vector<float> data(8);
    std::vector<std::int32_t> labels(4);
    if (b < kBatches) {
      loader.data(b, {0, 4}, std::as_writable_bytes(std::span(data)));
      EXPECT_EQ(data, want[static_cast<std::size_t>(b)].data);
    }
    if (b < kLag) continue;
    loader.labels(b - kLag, {0, 4}, labels);
    EXPECT_EQ(labels, want[static_cast<std::size_t>(b - kLag)].labels);
  }
}

// The calling thread reads a batch that is requested early. The batch counts as taken, and the workers
// continue after it.
TEST(Loader, WorkersContinueAfterARequestBeyondTheBuffers) {
  constexpr std::int64_t kBatches = 50;
  const auto data = std::make_shared<Watched>(shuffled(200));
  Loader loader(data, {.batch_size = 4, .workers = 1, .buffers = 2});
  loader.start(0, kBatches);
  std::vector<float> ahead(8);
  take(loader, 5);
  loader.data(7, {0, 4}, std::as_writable_bytes(std::span(ahead)));
  EXPECT_EQ(data->reads_of_owner, 4 + 4);
  for (std::int64_t b = 0; b < kBatches; ++b) {
    std::vector<std::int32_t> labels(4);
    if (b == 7) loader.labels(b, {0, 4}, labels);
    if (b != 5 && b != 7) take(loader, b);
  }
  EXPECT_EQ(data->reads_of_owner, 4 + 4);
  EXPECT_EQ(data->reads, 4 + 4 + 4 * (kBatches - 1)) << "the worker has read all but batch 5";
}

TEST(Loader, LoadsAheadIntoItsBuffersAndNoFurther) {
  const auto data = std::make_shared<Watched>(shuffled(100));
  Loader loader(data, {.batch_size = 10, .workers = 4, .buffers = 3});
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(data->reads, 0);
  loader.start(0);
  for (std::int64_t taken = 0; taken < 5; ++taken) {
    wait_for(data->reads, 10 * (taken + 3));
    std::this_thread::sleep_for(10ms);
    EXPECT_EQ(data->reads, 10 * (taken + 3));
    take(loader, taken);
  }
  loader.start(0, 2);
  wait_for(data->reads, 10 * (7 + 2));
  std::this_thread::sleep_for(10ms);
  EXPECT_LE(data->reads, 10 * (8 + 2));  // one more may have begun before
}

TEST(Loader, AllocatesNothingWhileItRuns) {
  const auto data = std::make_shared<NumberedDataset>(4000);
  for (const int workers : {0, 1, 3}) {
    Loader loader(data, {.batch_size = 20, .workers = workers});
    std::vector<float> values(40);
    std::vector<std::int32_t> labels(20);
    loader.start(0);
    long fewest = 1;  // of any 100 batches: each thread allocates its buffer at its first read
    for (std::int64_t b = 0; b < 2000 && fewest > 0; b += 100) {
      const long before = allocations();
      for (std::int64_t i = b; i < b + 100; ++i) {
        loader.data(i, {0, 20}, std::as_writable_bytes(std::span(values)));
        loader.labels(i, {0, 20}, labels);
      }
      fewest = std::min(fewest, allocations() - before);
    }
    EXPECT_EQ(fewest, 0) << workers;
  }
}

TEST(Loader, ErrorsReachTheCallerWithFileAndOffset) {
  const auto data = std::make_shared<NumberedDataset>(40, std::set<std::int64_t>{17});
  for (const int workers : {0, 1, 4}) {
    Loader loader(data, {.batch_size = 5, .workers = workers});
    loader.start(0);
    for (std::int64_t b = 0; b < 16; ++b) {
      std::vector<float> values(10);
      std::vector<std::int32_t> labels(5);
      const auto ask_data = [&] { loader.data(b, {0, 5}, std::as_writable_bytes(std::span(values))); };
      const auto ask_labels = [&] { loader.labels(b, {0, 5}, labels); };
      if (b % 8 != 3) {
        ask_data(), ask_labels();
        continue;
      }
      expect_error(ask_data, {"numbers.bin", "record 17", "offset 136"});
      expect_error(ask_labels, {"numbers.bin", "record 17", "offset 136"});
      EXPECT_THROW(ask_data(), BadSample);
      EXPECT_EQ(take(loader, b, {0, 2}).labels, (std::vector<std::int32_t>{15, 16}))
          << "these rows can be read";
    }
  }
}

TEST(Loader, SkipsBadSamplesAlikeForAnyNumberOfWorkers) {
  for (const int workers : {0, 1, 4}) {
    const auto bad = std::make_shared<BadSamples>(3);
    const auto good = std::make_shared<SkippingDataset>(
        std::make_shared<NumberedDataset>(40, std::set<std::int64_t>{3, 20, 21}), bad);
    const auto data = std::make_shared<ShuffledDataset>(good, 2);
    Loader loader(data, {.batch_size = 5, .workers = workers});
    loader.start(0, 16);
    std::multiset<std::int32_t> seen;
    for (std::int64_t b = 0; b < 16; ++b) {
      const Taken batch = take(loader, b);
      seen.insert(batch.labels.begin(), batch.labels.end());
    }
    EXPECT_EQ(bad->count(), 3);
    EXPECT_EQ(seen.count(3) + seen.count(20) + seen.count(21), 0u);
    EXPECT_EQ(seen.count(4), 4u);
    EXPECT_EQ(seen.count(22), 6u);
  }
}

TEST(Loader, GivesPairsOfLabelsWithTheirWeights) {
  const auto mixed = std::make_shared<MixupDataset>(shuffled(30), 10, 0.4, 1);
  const auto want = expected(*mixed, 10, true, 0, 6);
  for (const int workers : {0, 2}) {
    Loader loader(mixed, {.batch_size = 10, .workers = workers});
    loader.start(0);
    for (std::int64_t b = 0; b < 6; ++b) EXPECT_EQ(take(loader, b, 2), want[static_cast<std::size_t>(b)]);
  }
}

TEST(Loader, MayBeDestroyedAtAnyTime) {
  std::mt19937_64 random = generator("destroyed");
  for (int round = 0; round < 60; ++round) {
    const auto data =
        std::make_shared<Watched>(shuffled(40), std::chrono::microseconds(draw_int(random, 0, 200)));
    Loader loader(data, {.batch_size = draw_int(random, 1, 20), .workers = draw_int(random, 0, 4)});
    if (draw_bool(random, 0.9)) loader.start(draw_int(random, 0, 5));
    for (int b = draw_int(random, 0, 4); b > 0; --b) take(loader, b);
    std::this_thread::sleep_for(std::chrono::microseconds(draw_int(random, 0, 500)));
  }
}

TEST(Loader, RefusesInvalidRequests) {
  expect_error([] { Loader(shuffled(3), {.batch_size = 4, .drop_last = true}); },
               {"batch of 4", "3 samples", "keep the last"});
  expect_error([] { Loader(std::make_shared<SubsetDataset>(shuffled(3), 0, 0), {.drop_last = false}); },
               {"0 samples"});
  expect_error([] { Loader(shuffled(3), {.batch_size = 0}); }, {"batch size 0"});
  expect_error([] { Loader(shuffled(3), {.workers = -1}); }, {"-1 workers"});
  expect_error([] { Loader(shuffled(9), {.batch_size = 9, .workers = 1, .replicas = 2}); },
               {"9 samples", "2 replicas"});
  expect_error([] { share_of(12, 0, 3, 0, 5); }, {"12 samples", "3 replicas", "5 micro-batches"});
  expect_error([] { share_of(12, 3, 3); }, {"replica 3 of 3"});
  Loader loader(shuffled(10), {.batch_size = 4, .drop_last = false});
  expect_error([&] { loader.start(-1); }, {"-1"});
  expect_error([&] { take(loader, 2, {0, 3}); }, {"rows 0 … 2", "batch 2", "only 2", "from 0"});
  expect_error([&] { take(loader, -1, {0, 1}); }, {"batch -1"});
  std::vector<std::byte> room(15);
  expect_error([&] { loader.data(0, {0, 2}, room); }, {"16", "15", "2 rows", "f32[2]"});
}

}  // namespace
}  // namespace tandem::testing
