#include <tandem/datasets/loader.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace tandem {
namespace {

/// The Sample into which this thread reads.
Sample& scratch() {
  thread_local Sample sample;
  return sample;
}

std::int64_t batches_in(std::int64_t size, const LoaderOptions& o) {
  if (o.batch_size < 1 || o.workers < 0 || o.buffers < 0)
    throw Error(
        fmt::format("Loader: batch size {}, {}, {}; the batch size must be at least 1, the others at least 0",
                    o.batch_size, counted(o.workers, "worker"), counted(o.buffers, "buffer")));
  const std::int64_t batches = o.drop_last ? size / o.batch_size : (size + o.batch_size - 1) / o.batch_size;
  if (batches == 0)
    throw Error(fmt::format("Loader: a batch of {} is more than the dataset's {}; make it smaller{}",
                            o.batch_size, counted(size, "sample"),
                            size > 0 ? ", or keep the last batch" : ""));
  return batches;
}

}  // namespace

/// Holds a batch that was loaded ahead while a caller takes rows of it. It is empty if they were not loaded.
class Loader::Reading {
 public:
  Reading(Loader& loader, std::int64_t batch, Rows rows, bool kept, bool counts = true)
      : loader_(loader), taken_(counts ? rows.count : 0) {
    std::unique_lock lock(loader.mutex_);
    if (!kept || !loader.keeps(batch, rows)) return;
    if (batch >= loader.window_end()) {
      loader.early_[batch] += taken_;
      return;
    }
    Buffer& b = loader.buffer(batch);
    // This wait ends, because a worker that has a buffer does not wait for readers.
    loader.ready_.wait(lock, [&] { return batch < loader.first_ || (b.batch == batch && b.ready); });
    if (batch < loader.first_) return;  // other callers took all rows, some of them twice
    buffer_ = &b;
    ++b.readers;
  }
  ~Reading() {
    if (!buffer_) return;
    const std::lock_guard lock(loader_.mutex_);
    --buffer_->readers;
    buffer_->left -= taken_;
    loader_.free_taken();
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  explicit operator bool() const { return buffer_ && !buffer_->failed; }
  const Buffer& operator*() const { return *buffer_; }

 private:
  Loader& loader_;
  const std::int64_t taken_;
  Buffer* buffer_ = nullptr;
};

Loader::Loader(DatasetPtr dataset, LoaderOptions options)
    : dataset_(required(std::move(dataset))),
      options_(options),
      size_(dataset_->size()),
      sample_bytes_(dataset_->type().bytes()),
      per_epoch_(batches_in(size_, options)),
      labels_per_sample_(dataset_->labels_per_sample()) {
  if (options_.workers == 0) return;
  for (const std::int64_t batch : {std::int64_t{0}, per_epoch_ - 1}) kept_rows(batch);  // may throw
  const auto rows = static_cast<std::size_t>(kept_rows(0).count);
  buffers_.resize(static_cast<std::size_t>(options_.buffers > 0 ? options_.buffers : 2 * options_.workers));
  for (Buffer& b : buffers_) {
    if (options_.data) b.data.resize(rows * static_cast<std::size_t>(sample_bytes_));
    if (!options_.labels) continue;
    b.labels.resize(rows * static_cast<std::size_t>(labels_per_sample_));
    b.weights.resize(b.labels.size());
  }
  for (int i = 0; i < options_.workers; ++i)
    workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

Loader::~Loader() = default;

std::int64_t Loader::rows(std::int64_t batch) const {
  return std::min(options_.batch_size, size_ - batch % per_epoch_ * options_.batch_size);
}

Rows Loader::kept_rows(std::int64_t batch) const {
  return share_of(rows(batch), options_.replica, options_.replicas);
}

// Counts each row once for its data, once for its labels and once for its weights.
std::int64_t Loader::to_be_taken(Rows rows) const {
  return rows.count * (options_.data + options_.labels * (labels_per_sample_ > 1 ? 2 : 1));
}

// Returns whether the rows are, or will be, loaded ahead.
bool Loader::keeps(std::int64_t batch, Rows rows) const {
  if (buffers_.empty() || batch < first_ || batch >= end_) return false;
  const Rows kept = kept_rows(batch);
  return rows.first >= kept.first && rows.first + rows.count <= kept.first + kept.count;
}

void Loader::start(std::int64_t first, std::int64_t end) {
  if (first < 0) throw Error(fmt::format("Loader: start at batch {}; batches are numbered from 0", first));
  std::unique_lock lock(mutex_);
  end_ = next_;  // workers begin no more batches
  ready_.wait(lock, [&] { return loading_ == 0; });
  for (Buffer& b : buffers_) b.ready = false, b.batch = -1;
  early_.clear();
  first_ = next_ = first;
  end_ = std::max(first, end);
  free_.notify_all();
}

void Loader::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (free_.wait(lock, stop, [&] { return next_ < window_end(); })) {
    if (stop.stop_requested()) return;
    Buffer& b = buffer(next_);
    b.batch = next_++;
    b.rows = kept_rows(b.batch);
    b.left = to_be_taken(b.rows);
    if (const auto early = early_.extract(b.batch)) b.left -= early.mapped();
    ++loading_;
    lock.unlock();
    load(b, stop);
    lock.lock();
    --loading_;
    b.ready = true;
    ready_.notify_all();
    free_taken();
  }
}

void Loader::load(Buffer& b, const std::stop_token& stop) const try {
  b.failed = b.left <= 0;  // all rows were taken already, so there is nothing to read
  if (!b.failed)
    read(b.batch, b.rows, options_.data ? b.data.data() : nullptr,
         options_.labels ? b.labels.data() : nullptr, options_.labels ? b.weights.data() : nullptr, stop);
} catch (...) {
  b.failed = true;
}

// Frees buffers in order of batches, so that the held ones are always consecutive.
void Loader::free_taken() {
  const std::int64_t before = first_;
  for (; first_ < next_; ++first_) {
    Buffer& b = buffer(first_);
    if (!b.ready || b.left > 0 || b.readers > 0) break;
    b.ready = false;
    b.batch = -1;
  }
  if (first_ == before) return;
  free_.notify_all();
  ready_.notify_all();
}

void Loader::read(std::int64_t batch, Rows rows, std::byte* data, std::int32_t* labels, float* weights,
                  const std::stop_token& stop) const {
  const std::int64_t epoch = batch / per_epoch_;
  const std::int64_t first = batch % per_epoch_ * options_.batch_size + rows.first;
  const auto bytes = static_cast<std::size_t>(sample_bytes_),
             count = static_cast<std::size_t>(labels_per_sample_);
  Sample& sample = scratch();
  for (std::int64_t i = first; i < first + rows.count && !stop.stop_requested(); ++i) {
    data ? dataset_->get(epoch, i, sample) : dataset_->get_labels(epoch, i, sample);
    if ((data && sample.data.size() != bytes) || sample.labels.size() != count)
      throw Error(fmt::format("sample {} has {} bytes and {}, though its dataset promises {} and {}", i,
                              sample.data.size(), counted(std::ssize(sample.labels), "label"), bytes, count));
    if (data) std::memcpy(std::exchange(data, data + bytes), sample.data.data(), bytes);
    if (labels) labels = std::copy(sample.labels.begin(), sample.labels.end(), labels);
    if (weights && sample.weights.size() == count)
      weights = std::copy(sample.weights.begin(), sample.weights.end(), weights);
    else if (weights)
      weights = std::fill_n(weights, count, 1.0f);
  }
}

void Loader::check(std::int64_t batch, Rows rows, std::size_t given, std::size_t wanted) const {
  if (batch < 0 || rows.first < 0 || rows.count < 0 || rows.first + rows.count > this->rows(batch))
    throw Error(fmt::format("Loader: rows {} … {} of batch {}, which has only {}, from 0 on", rows.first,
                            rows.first + rows.count - 1, batch, batch < 0 ? 0 : this->rows(batch)));
  if (given != wanted)
    throw Error(fmt::format("Loader: {} of samples of {} with {} need room for {}, not {}",
                            counted(rows.count, "row"), to_string(dataset_->type()),
                            counted(labels_per_sample_, "label"), wanted, given));
}

void Loader::data(std::int64_t batch, Rows rows, std::span<std::byte> out) {
  check(batch, rows, out.size(), static_cast<std::size_t>(rows.count * sample_bytes_));
  const Reading held(*this, batch, rows, options_.data);
  if (!held) return read(batch, rows, out.data(), nullptr, nullptr);
  const Buffer& b = *held;
  std::copy_n(b.data.data() + (rows.first - b.rows.first) * sample_bytes_, out.size(), out.data());
}

void Loader::labels(std::int64_t batch, Rows rows, std::span<std::int32_t> out) {
  check(batch, rows, out.size(), static_cast<std::size_t>(rows.count * labels_per_sample_));
  const Reading held(*this, batch, rows, options_.labels);
  if (!held) return read(batch, rows, nullptr, out.data(), nullptr);
  const Buffer& b = *held;
  std::copy_n(b.labels.data() + (rows.first - b.rows.first) * labels_per_sample_, out.size(), out.data());
}

void Loader::weights(std::int64_t batch, Rows rows, std::span<float> out) {
  check(batch, rows, out.size(), static_cast<std::size_t>(rows.count * labels_per_sample_));
  const Reading held(*this, batch, rows, options_.labels, labels_per_sample_ > 1);
  if (!held) return read(batch, rows, nullptr, nullptr, out.data());
  const Buffer& b = *held;
  std::copy_n(b.weights.data() + (rows.first - b.rows.first) * labels_per_sample_, out.size(), out.data());
}

}  // namespace tandem
