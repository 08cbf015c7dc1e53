// Makes the whole gradient.
#include <algorithm>
#include <memory>

#include <tandem/core/base/element.h>
#include <tandem/core/base/memory.h>
#include <tandem/ops/reference/kernels.h>
#include <tandem/ops/sparse_update.h>
#include <tandem/ops/update_math.h>

namespace tandem::engine {
namespace {

template <class T> class SparseUpdateReference final : public Kernel {
 public:
  explicit SparseUpdateReference(const KernelSpec& spec)
      : rows_(static_cast<const SparseSgdUpdateOp&>(spec.op).gradient, spec.inputs),
        elements_(spec.inputs[0].elements()),
        rate_(spec.inputs[1].dtype) {}
  std::int64_t workspace() const override {
    return list_bytes() + 3 * elements_ * static_cast<std::int64_t>(sizeof(T));
  }

  void run(const Launch& l) const override {
    auto* const list = static_cast<TableRows::Row*>(l.workspace);
    const std::int64_t count = rows_.list(l, list), features = rows_.features();
    T* const total = reinterpret_cast<T*>(static_cast<std::byte*>(l.workspace) + list_bytes());
    T *const replica = total + elements_, *const part = replica + elements_;
    std::fill_n(total, 3 * elements_, T{});
    const auto add = [&](T* from, T* to) {
      for (std::int64_t i = 0; i < elements_; ++i) to[i] += from[i];
      std::fill_n(from, elements_, T{});
    };
    int of_replica = 0, of_part = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const TableRows::Place from = rows_.place(l, list[i].order);
      if (from.part != of_part || from.replica != of_replica) add(part, replica);
      if (from.replica != of_replica) add(replica, total);
      of_replica = from.replica, of_part = from.part;
      for (std::int64_t f = 0; f < features; ++f)
        part[list[i].id * features + f] += static_cast<const T*>(from.data)[f] / static_cast<T>(from.divisor);
    }
    add(part, replica);
    add(replica, total);
    const T lr = static_cast<T>(load_element(rate_, l.in[1], 0));
    const T* const w = input<T>(l, 0);
    for (std::int64_t row = 0, i = 0; i < elements_; ++row, i += features) {
      const bool named =
          std::any_of(list, list + count, [&](const TableRows::Row& r) { return r.id == row; });
      if (named)
        sgd_elements({}, lr, w + i, total + i, output<T>(l, 0) + i, features);
      else
        std::copy_n(w + i, features, output<T>(l, 0) + i);
    }
  }

 private:
  std::int64_t list_bytes() const {
    return align_up(rows_.count() * static_cast<std::int64_t>(sizeof(TableRows::Row)));
  }

  const TableRows rows_;
  const std::int64_t elements_;
  const DType rate_;
};

}  // namespace

KernelPtr make_sparse_sgd_update_reference(const KernelSpec& spec) {
  return make_for<float, double>(spec.inputs[0].dtype, [&](auto zero) {
    return std::make_unique<SparseUpdateReference<decltype(zero)>>(spec);
  });
}

}  // namespace tandem::engine
