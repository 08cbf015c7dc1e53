#include <tandem/core/graph/trace.h>

#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/base/error.h>
#include <tandem/core/base/rng.h>
#include <tandem/core/graph/graph_ops.h>

namespace tandem::engine {
namespace {
thread_local Trace* current_trace = nullptr;
thread_local bool no_grad = false;
}  // namespace

Trace::Trace(Graph& graph)
    : graph_(graph), outer_(current_trace), outer_no_grad_(std::exchange(no_grad, false)) {
  static std::atomic<std::uint64_t> traces{0};
  number_ = outer_ && &outer_->graph_ == &graph ? outer_->number_ : ++traces;
  current_trace = this;
}
Trace::~Trace() {
  current_trace = outer_;
  no_grad = outer_no_grad_;
}
Trace* Trace::active() { return current_trace; }
Trace* Trace::current() {
  if (!current_trace)
    throw Error("no Trace records on this thread: make one, or call this in the loss of a TrainStep");
  return current_trace;
}

Tensor Trace::tensor(ValueId id) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->type = graph_.type(id);
  impl->trace = number_;
  impl->value = id;
  return Tensor(std::move(impl));
}

Tensors Trace::tensors(const std::vector<ValueId>& ids) {
  Tensors result;
  for (ValueId v : ids) result.push_back(tensor(v));
  return result;
}

ValueId Trace::value(const Tensor& tensor) {
  if (!tensor.defined())
    throw Error("a Tensor is used that was given no value, as grad() is before backward()");
  const auto& impl = *tensor.impl();
  if (impl.trace == number_) return impl.value;
  if (impl.trace != 0)
    throw Error(
        "a Tensor of another trace is used in this one; data shared by traces must be a state of a module");
  if (impl.state.empty()) {
    tensor.data();  // throws Error if it has no contents
    if (tensor.needs_grad() && !no_grad)
      throw Error(fmt::format(
          "{}a Tensor {} that requires a gradient is used in a trace, where it would be a constant; make it "
          "a parameter of a module, pass it in the batch, or detach() it",
          Scope::prefix(Scope::path()), to_string(impl.type)));
    std::vector<std::byte> bytes(static_cast<std::size_t>(impl.type.bytes()));
    if (!bytes.empty()) std::memcpy(bytes.data(), impl.buffer.get(), bytes.size());
    return value(apply(std::make_shared<ConstantOp>(impl.type, std::move(bytes)), {}).at(0));
  }
  if (states_.try_emplace(impl.state, tensor).first->second.impl() != tensor.impl())
    throw Error(fmt::format(
        "two states in one trace are called '{}'; give one of the modules another name, or a parent",
        impl.state));
  StateId state = graph_.find_state(impl.state);
  if (state < 0) state = graph_.add_state({impl.state, impl.type, impl.requires_grad});
  const auto assigned = assigned_.find(state);
  if (assigned == assigned_.end()) return value(read(state));
  return value(apply(std::make_shared<DetachOp>(), {this->tensor(assigned->second)}).at(0));
}

Tensor Trace::input(const std::string& name, TensorType type, bool per_model) {
  if (const auto found = inputs_.find(name); found != inputs_.end()) {
    if (graph_.type(found->second) != type)
      throw Error(fmt::format("input '{}' is {}, but is requested as {}", name,
                              to_string(graph_.type(found->second)), to_string(type)));
    return tensor(found->second);
  }
  Tensor result = apply(std::make_shared<InputOp>(name, std::move(type), per_model), {}).at(0);
  inputs_[name] = result.impl()->value;
  return result;
}

void Trace::result(const std::string& name, const Tensor& tensor) {
  if (name.empty()) throw Error("a result needs a name");
  if (!tensor) throw Error(fmt::format("result '{}' was given no value", name));
  if (!results_.insert(name).second)
    throw Error(fmt::format("two results of one trace are called '{}'", name));
  apply(std::make_shared<ResultOp>(name), {tensor});
}

Tensor Trace::read(StateId state, int age) {
  const std::string key = fmt::format("{}@{}", state, age);
  if (const auto found = reads_.find(key); found != reads_.end()) return tensor(found->second);
  const State& read = graph_.state(state);
  const NodeId node =
      graph_.add(std::make_shared<ReadOp>(state, age, read.type), {}, next_tag().named(read.path));
  reads_[key] = graph_.node(node).outputs[0];
  return tensor(reads_[key]);
}

void Trace::assign(StateId state, const Tensor& tensor) {
  const ValueId assigned = value(tensor);
  apply(std::make_shared<AssignOp>(state), {this->tensor(assigned)});
  assigned_[state] = assigned;
}

Tensors Trace::apply(OpPtr op, const Tensors& inputs) {
  std::vector<ValueId> ids;
  for (const auto& t : inputs) ids.push_back(value(t));
  Tag tag = next_tag();
  if (!tag_ && op->random()) tag.rng_id = rng_id(tag.path, calls_[tag.path]++);
  const bool detaches = no_grad && !as<BoundaryOp>(*op);
  Tensors outputs = tensors(graph_.node(graph_.add(std::move(op), std::move(ids), std::move(tag))).outputs);
  if (detaches)
    for (Tensor& t : outputs) t = apply(std::make_shared<DetachOp>(), {t}).at(0);
  return outputs;
}

Tag Trace::next_tag() { return tag_ ? *tag_ : tag_of(Phase::forward, Scope::path()); }

}  // namespace tandem::engine

namespace tandem {
namespace {
thread_local std::string current_path;
}  // namespace

NoGrad::NoGrad() : outer_(std::exchange(engine::no_grad, true)) {}
NoGrad::~NoGrad() { engine::no_grad = outer_; }
bool NoGrad::active() { return engine::no_grad; }

Scope::Scope(const std::string& name) : outer_length_(current_path.size()) {
  if (!name.empty()) current_path += (current_path.empty() ? "" : ".") + name;
}
Scope::~Scope() { current_path.resize(outer_length_); }
const std::string& Scope::path() { return current_path; }

void deliver(const std::string& name, const Tensor& tensor) {
  engine::Trace* const trace = engine::Trace::active();
  if (!trace) throw Error(fmt::format("result '{}': only a traced function delivers results", name));
  trace->result(name, tensor);
}

}  // namespace tandem
