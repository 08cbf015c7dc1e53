#include <tandem/ops/eager.h>

#include <algorithm>
#include <atomic>
#include <typeinfo>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/team.h>
#include <tandem/core/graph/trace.h>
#include <tandem/ops/kernels.h>

namespace tandem {
using namespace engine;
namespace {

thread_local std::int64_t eager_batch = 0;
thread_local int eager_microbatch = 0;
thread_local const KernelTable* eager_kernels = &cpu_kernels();
thread_local std::unordered_map<std::string, int> eager_calls;
std::atomic<std::uint64_t> creation_order{0};

Tag eager_tag(const Op& op) {
  Tag tag = tag_of(Phase::forward, Scope::path()).of_microbatch(eager_microbatch);
  if (op.random()) tag.rng_id = rng_id(tag.path, eager_calls[tag.path]++);
  return tag;
}

}  // namespace

Tensors engine::apply_eager(OpPtr op, Tensors inputs) {
  const Tag tag = eager_tag(*op);
  return apply_eager(std::move(op), std::move(inputs), tag);
}

Tensors engine::apply_eager(OpPtr op, Tensors inputs, const Tag& tag) {
  Tensors outputs = evaluate(*eager_kernels, op, inputs, tag);
  if (!NoGrad::active() && std::ranges::any_of(inputs, &Tensor::needs_grad)) {
    auto history = std::make_shared<History>(std::move(op), std::move(inputs), tag, creation_order++);
    for (const auto& t : outputs) {
      history->outputs.push_back(without_history(t));
      t.impl()->output = history->outputs.size() - 1;
    }
    for (const auto& t : outputs) t.impl()->history = history;
  }
  return outputs;
}

Tensors engine::evaluate(const KernelTable& kernels, const OpPtr& op, const Tensors& inputs, const Tag& tag) {
  Graph scratch;  // checks the types, with the same error messages as a trace
  std::vector<ValueId> ids;
  std::vector<const void*> in_data;
  for (const auto& t : inputs) {
    ids.push_back(scratch.add_value(t.type()));
    if (t.impl()->trace)
      throw Error(fmt::format("{}: a traced Tensor is used outside its trace", op->label()));
    in_data.push_back(t.data());
  }
  const Types in = scratch.types(ids);
  const Types out = scratch.types(scratch.node(scratch.add(op, ids, tag)).outputs);
  Tensors outputs;
  std::vector<void*> out_data;
  for (const auto& t : out) {
    outputs.push_back(Tensor::empty(t));
    out_data.push_back(outputs.back().data());
  }
  const int threads = TeamSize::current();
  const TeamSize team(threads);
  const KernelPtr kernel = kernels.make({*op, in, out, tag, threads});
  const Buffer workspace(kernel->workspace());
  const RankContext alone;
  try {
    kernel->run({in_data.data(), out_data.data(), workspace.data(), eager_batch, &alone});
  } catch (const Error& e) {
    if (typeid(e) != typeid(Error)) throw;
    throw Error(about(*op, tag, in, e.what()));
  }
  return outputs;
}

engine::History::History(OpPtr op, Tensors inputs, Tag tag, std::uint64_t order)
    : op(std::move(op)), inputs(std::move(inputs)), tag(std::move(tag)), batch(eager_batch), order(order) {
  for (const Tensor& t : this->inputs) versions.push_back(t.impl()->version);
}

// Histories hold each other through their inputs, in a chain as long as the tape. The loop takes it apart one
// by one, because recursion could overflow the stack.
engine::History::~History() {
  Tensors pending = std::move(inputs);
  while (!pending.empty()) {
    const Tensor t = std::move(pending.back());
    pending.pop_back();
    if (!t.impl() || t.impl().use_count() > 1 || !t.impl()->history || t.impl()->history.use_count() > 1)
      continue;
    for (Tensor& input : t.impl()->history->inputs) pending.push_back(std::move(input));
    t.impl()->history->inputs.clear();
  }
}

EagerBatch::EagerBatch(std::int64_t batch, int microbatch)
    : outer_(std::exchange(eager_batch, batch)),
      outer_microbatch_(std::exchange(eager_microbatch, microbatch)),
      outer_calls_(std::exchange(eager_calls, {})) {}
EagerBatch::~EagerBatch() {
  eager_batch = outer_;
  eager_microbatch = outer_microbatch_;
  eager_calls = std::move(outer_calls_);
}
std::int64_t EagerBatch::current() { return eager_batch; }

EagerKernels::EagerKernels(const KernelTable& kernels) : outer_(std::exchange(eager_kernels, &kernels)) {}
EagerKernels::~EagerKernels() { eager_kernels = outer_; }
const KernelTable& EagerKernels::current() { return *eager_kernels; }

}  // namespace tandem
