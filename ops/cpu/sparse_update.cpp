// Sorts the ids, so that the rows to add to one row of the table follow each other. A team shares the rows of
// the table.
#include <algorithm>
#include <atomic>
#include <cstring>

#include <tandem/core/base/clones.h>
#include <tandem/core/base/memory.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/sum_rows.h>
#include <tandem/ops/sparse_update.h>
#include <tandem/ops/update_math.h>

namespace tandem::engine {
namespace {

using Row = TableRows::Row;

TANDEM_CLONES void move_row(float lr, const float* g, float* w, std::int64_t n) {
  sgd_elements({}, lr, w, g, w, n);
}

// Sums of the features of one row of the table.
class Sums {
 public:
  Sums(const TableRows& rows, float* memory)
      : rows_(rows), n_(rows.features()), total_(memory), replica_(memory + n_), part_(memory + 2 * n_) {}

  // Adds rows begin … end−1, in order.
  const float* add(const Launch& l, const Row* begin, const Row* end) {
    std::fill_n(total_, 3 * n_, 0.0f);
    TableRows::Place before = rows_.place(l, begin->order);
    for (const Row* row = begin; row < end; ++row) {
      const TableRows::Place from = rows_.place(l, row->order);
      if (from.part != before.part || from.replica != before.replica) close(part_, replica_);
      if (from.replica != before.replica) close(replica_, total_);
      const auto* x = static_cast<const float*>(from.data);
      from.divisor == 1 ? add_row(x, n_, part_) : add_share(x, static_cast<float>(from.divisor), n_, part_);
      before = from;
    }
    close(part_, replica_);
    close(replica_, total_);
    return total_;
  }

 private:
  void close(float* from, float* to) const {
    add_row(from, n_, to);
    std::fill_n(from, n_, 0.0f);
  }
  const TableRows& rows_;
  const std::int64_t n_;
  float *const total_, *const replica_, *const part_;
};

class SparseUpdateKernel final : public Kernel {
 public:
  explicit SparseUpdateKernel(const KernelSpec& spec)
      : rows_(static_cast<const SparseSgdUpdateOp&>(spec.op).gradient, spec.inputs),
        table_(spec.inputs[0]),
        rate_(spec.inputs[1].dtype),
        threads_(useful_threads(spec.threads, 3 * rows_.count() * rows_.features() * 4)),
        list_bytes_(align_up(rows_.count() * static_cast<std::int64_t>(sizeof(Row)))) {}
  std::int64_t workspace() const override { return list_bytes_ + threads_ * sums_bytes(); }

  void run(const Launch& l) const override {
    float* const w = output<float>(l, 0);
    if (l.in[0] != l.out[0]) std::memcpy(w, l.in[0], static_cast<std::size_t>(table_.bytes()));
    auto* const list = static_cast<Row*>(l.workspace);
    const std::int64_t count = rows_.list(l, list);
    std::sort(list, list + count,
              [](const Row& a, const Row& b) { return a.id != b.id ? a.id < b.id : a.order < b.order; });
    const auto lr = static_cast<float>(load_element(rate_, l.in[1], 0));
    std::atomic<std::int64_t> next{0};
    parallel_parts(threads_, count, [&](std::int64_t begin, std::int64_t end) {
      Sums sums(rows_, reinterpret_cast<float*>(static_cast<std::byte*>(l.workspace) + list_bytes_ +
                                                next.fetch_add(1) * sums_bytes()));
      // A row of the table belongs to the part in which its first id is.
      const auto same = [&](std::int64_t i) { return list[i].id == list[i - 1].id; };
      while (begin < end && begin > 0 && same(begin)) ++begin;
      while (begin < end) {
        std::int64_t last = begin + 1;
        while (last < count && same(last)) ++last;
        move_row(lr, sums.add(l, list + begin, list + last), w + list[begin].id * rows_.features(),
                 rows_.features());
        begin = last;
      }
    });
  }

 private:
  std::int64_t sums_bytes() const { return align_up(3 * rows_.features() * 4); }

  const TableRows rows_;
  const TensorType table_;
  const DType rate_;
  const int threads_;
  const std::int64_t list_bytes_;
};

}  // namespace

KernelPtr make_sparse_sgd_update_cpu(const KernelSpec& spec) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  return std::make_unique<SparseUpdateKernel>(spec);
}

}  // namespace tandem::engine
