#include <tandem/core/tensor.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include <fmt/format.h>

#include <tandem/core/convert.h>
#include <tandem/core/error.h>
#include <tandem/core/kernel.h>
#include <tandem/core/memory.h>
#include <tandem/core/rng.h>
#include <tandem/core/team.h>
#include <tandem/core/trace.h>

namespace tandem {
namespace {

thread_local std::int64_t eager_batch = 0;
thread_local int eager_microbatch = 0;
thread_local bool grad_enabled = true;
thread_local std::unordered_map<std::string, int> eager_calls;
std::atomic<std::uint64_t> creation_order{0};

const Tensor::Impl& get(const Tensor& tensor) {
  if (!tensor.defined()) throw Error("this Tensor is undefined");
  return *tensor.impl();
}

bool wants_history(const Tensor& tensor) {
  return tensor.defined() && (tensor.impl()->requires_grad || tensor.impl()->history);
}

Tag eager_tag(const Op& op) {
  Tag tag;
  tag.path = Scope::path();
  tag.microbatch = eager_microbatch;
  if (op.random()) tag.rng_id = fnv1a(fmt::format("{}#{}", tag.path, eager_calls[tag.path]++));
  return tag;
}

Tensors apply_eager(OpPtr op, Tensors inputs) {
  const Tag tag = eager_tag(*op);
  Tensors outputs = evaluate(cpu_kernels(), op, inputs, tag);
  bool record = false;
  for (const auto& t : inputs) record |= wants_history(t);
  if (record && grad_enabled) {
    auto history = std::make_shared<History>(std::move(op), std::move(inputs), tag, creation_order++);
    for (const auto& t : outputs) {
      history->outputs.emplace_back(std::make_shared<Tensor::Impl>(*t.impl()));
      t.impl()->output = history->outputs.size() - 1;
    }
    for (const auto& t : outputs) t.impl()->history = history;
  }
  return outputs;
}

}  // namespace

const TensorType& Tensor::type() const { return get(*this).type; }

std::int64_t Tensor::size(int axis) const {
  const int rank = type().rank();
  const int i = axis < 0 ? axis + rank : axis;
  if (i < 0 || i >= rank) throw Error(fmt::format("axis {} of {}", axis, to_string(type())));
  return shape()[static_cast<std::size_t>(i)];
}

Tensor Tensor::empty(TensorType type) {
  auto impl = std::make_shared<Impl>();
  impl->buffer = allocate(type.bytes());
  impl->type = std::move(type);
  return Tensor(std::move(impl));
}

Tensor Tensor::zeros(TensorType type) {
  Tensor t = empty(std::move(type));
  std::memset(t.data(), 0, static_cast<std::size_t>(t.type().bytes()));
  return t;
}

Tensor Tensor::full(TensorType type, double value) {
  Tensor t = empty(std::move(type));
  for (std::int64_t i = 0; i < t.elements(); ++i) store_element(t.dtype(), t.data(), i, value);
  return t;
}

Tensor Tensor::from(const std::vector<double>& values, Shape shape, DType dtype) {
  Tensor t = empty({dtype, std::move(shape)});
  if (static_cast<std::int64_t>(values.size()) != t.elements())
    throw Error(fmt::format("{} values do not fill {}", values.size(), to_string(t.type())));
  for (std::size_t i = 0; i < values.size(); ++i)
    store_element(dtype, t.data(), static_cast<std::int64_t>(i), values[i]);
  return t;
}

void* Tensor::data() {
  if (get(*this).trace) throw Error("a traced Tensor has no data");
  return impl_->buffer.get();
}
const void* Tensor::data() const { return const_cast<Tensor*>(this)->data(); }

std::vector<double> Tensor::values() const {
  std::vector<double> result(static_cast<std::size_t>(elements()));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = load_element(dtype(), data(), static_cast<std::int64_t>(i));
  return result;
}

double Tensor::item() const {
  if (elements() != 1) throw Error(fmt::format("item() of {}", to_string(type())));
  return load_element(dtype(), data(), 0);
}

Tensor& Tensor::requires_grad(bool on) {
  get(*this);
  impl_->requires_grad = on;
  return *this;
}
bool Tensor::needs_grad() const { return wants_history(*this); }
Tensor Tensor::grad() const { return get(*this).grad; }
void Tensor::set_grad(Tensor grad) {
  get(*this);
  impl_->grad = std::move(grad);
}

Tensors apply_op(OpPtr op, Tensors inputs) {
  if (Trace* trace = Trace::current()) return trace->apply(std::move(op), inputs);
  return apply_eager(std::move(op), std::move(inputs));
}

Tensors evaluate(const KernelTable& kernels, const OpPtr& op, const Tensors& inputs, const Tag& tag) {
  Graph scratch;  // checks the types, and words the error as a trace would
  std::vector<ValueId> ids;
  std::vector<const void*> in_data;
  for (const auto& t : inputs) {
    if (get(t).trace) throw Error(fmt::format("{}: a traced Tensor is used outside its trace", op->name()));
    ids.push_back(scratch.add_value(t.type()));
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
  const TeamSize team(default_threads());
  const KernelPtr kernel = kernels.make({*op, in, out, tag, default_threads()});
  const Buffer workspace(kernel->workspace());
  const RankContext alone;
  kernel->run({in_data.data(), out_data.data(), workspace.data(), eager_batch, &alone});
  return outputs;
}

Tensor apply_op1(OpPtr op, Tensors inputs) { return apply_op(std::move(op), std::move(inputs)).at(0); }

History::History(OpPtr op, Tensors inputs, Tag tag, std::uint64_t order)
    : op(std::move(op)), inputs(std::move(inputs)), tag(std::move(tag)), batch(eager_batch), order(order) {
  for (const Tensor& t : this->inputs) versions.push_back(t.impl()->version);
}

// Histories hold each other through their inputs, as long a chain as the tape: taken apart one by one, not by
// recursion.
History::~History() {
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

void assign(const Tensor& state, const Tensor& value) {
  if (state.impl()->slot.empty()) throw Error("assign: the first Tensor is not a state");
  if (state.type() != value.type())
    throw Error(fmt::format("state '{}' is {}, the value {}", state.impl()->slot, to_string(state.type()),
                            to_string(value.type())));
  if (Trace* trace = Trace::current()) {
    trace->value(state);  // makes the slot known
    trace->assign(trace->graph().find_slot(state.impl()->slot), value);
    return;
  }
  ++state.impl()->version;
  std::memcpy(state.impl()->buffer.get(), value.data(), static_cast<std::size_t>(value.type().bytes()));
}

EagerBatch::EagerBatch(std::int64_t batch, int microbatch)
    : outer_(eager_batch), outer_microbatch_(eager_microbatch), outer_calls_(std::move(eager_calls)) {
  eager_batch = batch;
  eager_microbatch = microbatch;
  eager_calls.clear();
}
EagerBatch::~EagerBatch() {
  eager_batch = outer_;
  eager_microbatch = outer_microbatch_;
  eager_calls = std::move(outer_calls_);
}
std::int64_t EagerBatch::current() { return eager_batch; }

NoGrad::NoGrad() : outer_(grad_enabled) { grad_enabled = false; }
NoGrad::~NoGrad() { grad_enabled = outer_; }

}  // namespace tandem
