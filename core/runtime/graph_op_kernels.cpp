#include <tandem/core/runtime/graph_op_kernels.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include <tandem/core/base/element.h>
#include <tandem/core/base/error.h>
#include <tandem/core/graph/graph_ops.h>
#include <tandem/core/graph/kernel.h>
#include <tandem/core/runtime/host.h>

namespace tandem::engine {
namespace {

class InputKernel final : public Kernel {
 public:
  explicit InputKernel(const KernelSpec& spec)
      : name_(static_cast<const InputOp&>(spec.op).input),
        per_model_(static_cast<const InputOp&>(spec.op).per_model),
        type_(spec.outputs[0]),
        bytes_(static_cast<std::size_t>(type_.bytes())),
        models_(static_cast<const InputOp&>(spec.op).models),
        microbatch_(spec.tag.microbatch),
        sum_of_(static_cast<const InputOp&>(spec.op).sum_of),
        workspace_(sum_of_ ? type_.elements() * size_of(DType::f64) : 0) {}

  std::int64_t workspace() const override { return workspace_; }
  void run(const Launch& l) const override {
    if (sum_of_) return run_sum(l);
    run_one(l);
  }

 private:
  void run_sum(const Launch& l) const {
    auto* const sums = static_cast<double*>(l.workspace);
    std::fill_n(sums, type_.elements(), 0.0);
    Launch one = l;
    const auto [begin, end] = sum_of_->of(l.batch - l.first_batch);
    for (one.batch = l.first_batch + begin; one.batch < l.first_batch + end; ++one.batch) {
      run_one(one);
      for (std::int64_t i = 0; i < type_.elements(); ++i) sums[i] += load_element(type_.dtype, l.out[0], i);
    }
    for (std::int64_t i = 0; i < type_.elements(); ++i) store_element(type_.dtype, l.out[0], i, sums[i]);
  }

  void run_one(const Launch& l) const {
    if (per_model_ || !filled_.load(std::memory_order_relaxed)) return fill_and_check(l);
    fill(l);
  }

  void fill(const Launch& l) const {
    l.rank->host->fill(
        {name_, type_, l.batch, microbatch_, *l.rank, {static_cast<std::byte*>(l.out[0]), bytes_}, models_});
  }

  // A host that does not know an input leaves it as it is, and training would go on with old bytes. Therefore
  // the first fill must change something; and each fill of rates and seeds, every model's.
  void fill_and_check(const Launch& l) const {
    auto* const data = static_cast<unsigned char*>(l.out[0]);
    const std::size_t part = per_model_ ? static_cast<std::size_t>(size_of(type_.dtype)) : bytes_;
    const auto same = [&](const unsigned char* bytes, std::size_t at, unsigned char pattern) {
      return std::all_of(bytes + at, bytes + at + part, [&](unsigned char byte) { return byte == pattern; });
    };
    constexpr unsigned char kFirst = 0xff, kSecond = 0x5a;  // one of them can be the true value
    std::memset(data, kFirst, bytes_);
    fill(l);
    bool all = true;
    for (std::size_t at = 0; at < bytes_; at += part) all = all && !same(data, at, kFirst);
    if (!all) {
      const std::vector<unsigned char> first(data, data + bytes_);
      std::memset(data, kSecond, bytes_);
      fill(l);
      for (std::size_t at = 0; at < bytes_; at += part)
        if (same(first.data(), at, kFirst) && same(data, at, kSecond))
          throw Error(fmt::format(
              "the host does not fill the input '{}' of {}; it must fill all that the Program asks for",
              name_, to_string(type_)));
    }
    filled_.store(true, std::memory_order_relaxed);
  }

  const std::string name_;
  const bool per_model_;
  const TensorType type_;
  const std::size_t bytes_;
  const ModelRange models_;
  const int microbatch_;
  const std::optional<BatchRange> sum_of_;
  const std::int64_t workspace_;
  mutable std::atomic<bool> filled_{false};  // at least once
};

KernelPtr make_input(const KernelSpec& spec) { return std::make_unique<InputKernel>(spec); }

KernelPtr make_result(const KernelSpec& spec) {
  const auto bytes = static_cast<std::size_t>(spec.inputs[0].bytes());
  return make_kernel([name = static_cast<const ResultOp&>(spec.op).result, type = spec.inputs[0], bytes,
                      models = static_cast<const ResultOp&>(spec.op).models](const Launch& l) {
    l.rank->host->deliver({name,
                           type,
                           l.batch,
                           l.first_batch,
                           *l.rank,
                           {static_cast<const std::byte*>(l.in[0]), bytes},
                           models});
  });
}

KernelPtr make_constant(const KernelSpec& spec) {
  const auto* constant = static_cast<const ConstantOp*>(&spec.op);
  return make_kernel(
      [bytes = constant->bytes](const Launch& l) { std::memcpy(l.out[0], bytes.data(), bytes.size()); });
}

// A value that the planner could not place in the memory of the state.
KernelPtr make_assign(const KernelSpec& spec) {
  const auto bytes = static_cast<std::size_t>(spec.inputs[0].bytes());
  return make_kernel([bytes](const Launch& l) { std::memcpy(l.out[0], l.in[0], bytes); });
}

}  // namespace

void add_graph_op_kernels(KernelTable& table) {
  table.add("input", make_input);
  table.add("result", make_result);
  table.add("constant", make_constant);
  table.add("assign", make_assign);
}

}  // namespace tandem::engine
