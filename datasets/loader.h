#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include <tandem/datasets/dataset.h>
#include <tandem/datasets/share.h>

namespace tandem {

struct LoaderOptions {
  std::int64_t batch_size = 1;  ///< samples in the global batch
  bool drop_last = false;       ///< leave out samples that do not fill a batch; else the last batch is short
  int workers = 0;              ///< threads that load ahead
  int buffers = 0;              ///< batches held at most; 0: two per worker
  // What callers will request, each row once (with several labels per sample, also their weights once). Only
  // this is loaded ahead:
  int replica = 0, replicas = 1;    ///< the rows of this replica (share.h); 0 of 1: all
  bool data = true, labels = true;  ///< of those rows
};

/// The batches of a dataset, numbered through all epochs from 0: samples in the dataset's order, the same
/// rows for any number of workers, replicas and micro-batches.
///
/// After `start`, workers fill a fixed number of buffers with the next batches; a buffer is free again when
/// all its rows were taken. If a request was not loaded ahead (there are no workers, `start` was not called,
/// the batch is not next, or a worker met an error in it), the calling thread reads it. So no caller waits
/// for another caller, and results and errors do not depend on the thread that read them. Nothing is
/// allocated during a run, except for requests ahead of the buffers.
class Loader {
 public:
  /// Throws Error if options are out of range, or if the dataset gives no batch.
  Loader(DatasetPtr dataset, LoaderOptions options);
  /// Waits for the samples that workers are reading.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::int64_t batches_per_epoch() const { return per_epoch_; }
  /// Samples in `batch`: the batch size, or fewer in the last of an epoch.
  std::int64_t rows(std::int64_t batch) const;

  /// Begins to load batches `first` … `end`-1, and forgets what was loaded before. Call it while no request
  /// is running.
  void start(std::int64_t first, std::int64_t end = std::numeric_limits<std::int64_t>::max());

  // Several threads can call these at once. They throw what reading the rows throws, and Error if `batch`
  // does not have these rows or `out` has another size.

  /// Writes the data of `rows` of `batch` to `out`, one after the other, each of the dataset's type.
  void data(std::int64_t batch, Rows rows, std::span<std::byte> out);
  /// Writes their labels (rows, labels_per_sample).
  void labels(std::int64_t batch, Rows rows, std::span<std::int32_t> out);
  /// Writes the weights of these labels; 1 if the dataset gives none.
  void weights(std::int64_t batch, Rows rows, std::span<float> out);

 private:
  /// One batch: the rows from `first` on.
  struct Buffer {
    std::int64_t batch = -1;
    bool ready = false;
    std::int64_t left = 0;  // rows of data, of labels and of weights still to be taken
    int readers = 0;
    bool failed = false;  // not read: the caller reads the rows itself, and meets the error
    Rows rows;
    std::vector<std::byte> data;
    std::vector<std::int32_t> labels;
    std::vector<float> weights;
  };
  class Reading;

  void work(const std::stop_token& stop);
  void load(Buffer& buffer, const std::stop_token& stop) const;
  void read(std::int64_t batch, Rows rows, std::byte* data, std::int32_t* labels, float* weights,
            const std::stop_token& stop = {}) const;
  void check(std::int64_t batch, Rows rows, std::size_t given, std::size_t wanted) const;
  Rows kept_rows(std::int64_t batch) const;
  std::int64_t window_end() const { return std::min(first_ + std::ssize(buffers_), end_); }
  std::int64_t to_be_taken(Rows rows) const;
  bool keeps(std::int64_t batch, Rows rows) const;
  void free_taken();
  Buffer& buffer(std::int64_t batch) {
    return buffers_[static_cast<std::size_t>(batch % std::ssize(buffers_))];
  }

  const DatasetPtr dataset_;
  const LoaderOptions options_;
  const std::int64_t size_, sample_bytes_, per_epoch_;
  const int labels_per_sample_;
  std::mutex mutex_;
  std::condition_variable_any free_;             // a buffer became free
  std::condition_variable ready_;                // a batch became ready
  std::vector<Buffer> buffers_;                  // batch b is in number b mod size while it is held
  std::int64_t first_ = 0, next_ = 0, end_ = 0;  // first batch held, next to load, first not wanted
  int loading_ = 0;                              // buffers that are being filled
  std::map<std::int64_t, std::int64_t> early_;   // by batch beyond the held ones: rows already taken
  std::vector<std::jthread> workers_;            // declared last: they end before what they use
};

}  // namespace tandem
