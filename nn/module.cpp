#include <tandem/nn/module.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <typeinfo>
#include <utility>

#include <fmt/format.h>

#include <tandem/core/graph/tensor_impl.h>
#include <tandem/core/graph/trace.h>
#include <tandem/nn/file_layout.h>

namespace tandem::nn {
using namespace engine;
namespace {
thread_local DType parameter_dtype = DType::f32;
thread_local std::uint64_t eager_seed = 0;

thread_local const ModuleBase* innermost = nullptr;  // of those whose scope exists

// Joins two parts of a path, of which either can be empty.
std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + "." + b;
}

// Stands for the contents of a parameter before `initialize` or `load`.
class NoContents final : public ElementSource {
 public:
  explicit NoContents(std::string path) : path_(std::move(path)) {}
  void fetch(Tensor::Impl&) override {
    throw Error(
        fmt::format("parameter '{}' has no contents yet: initialize() or load() the model first", path_));
  }

 private:
  std::string path_;
};

Parameter beginning_with(const std::string& name, const Tensor& initial) {
  return {.name = name,
          .tensor = Tensor::empty(initial.type()),
          .initialize = [initial](const TensorType&, const std::string&, std::uint64_t) { return initial; }};
}

// Returns a state with names from the module at `path`, if it has them from the root, as a TrainStep has.
StateDict below(const std::string& path, const StateDict& state) {
  StateDict result;
  for (const auto& [name, value] : state) {
    if (name.starts_with(kOptimizerPath)) continue;
    if (path.empty() || !name.starts_with(path + ".")) return state;
    result.emplace(name.substr(path.size() + 1), value);
  }
  return result;
}

// From now on the parameter's Tensor names the state `path`.
void set_contents(const Parameter& p, const std::string& path, const Tensor& value) {
  auto& impl = *p.tensor.impl();
  impl.state = path;
  set_elements(impl, value.data());
}
}  // namespace

DType default_dtype() { return parameter_dtype; }
void set_default_dtype(DType dtype) { parameter_dtype = dtype; }
void set_seed(std::uint64_t seed) { eager_seed = seed; }

Tensor current_seed() {
  if (Trace* trace = Trace::active()) return trace->input(kSeedInput, {DType::i64, {}}, /*per_model=*/true);
  Tensor seed = Tensor::empty({DType::i64, {}});
  seed.as<std::int64_t>()[0] = static_cast<std::int64_t>(eager_seed);
  return seed;
}

ModuleBase::ModuleBase(ModuleBase& parent, std::string name) : name_(std::move(name)), parent_(&parent) {
  parent.require_new(name_);
  parent.children_.push_back(this);
}

ModuleBase::~ModuleBase() {
  if (parent_) std::erase(parent_->children_, this);
  for (ModuleBase* child : children_) child->parent_ = nullptr;
}

void ModuleBase::require_new(const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos)
    throw Error(fmt::format(
        "'{}' cannot name a part of a module: a name must not be empty or have a dot. For parts layer.0, "
        "layer.1 … make a module 'layer' with parts 0, 1, …",
        name));
  if (kOptimizerPath.substr(0, kOptimizerPath.size() - 1) == name)
    throw Error(
        fmt::format("'{}' cannot name a part of a module: the optimizer's state has this name", name));
  if (std::ranges::any_of(children_, [&](const ModuleBase* c) { return c->name_ == name; }) ||
      std::ranges::any_of(parameters_, [&](const auto& p) { return p->name == name; }))
    throw Error(fmt::format("a module has two parts called '{}'", name));
}

std::string ModuleBase::path(const ModuleBase* from) const {
  std::string result;
  for (const ModuleBase* m = this; m && m != from; m = m->parent_) result = joined(m->name_, result);
  return result;
}

ModuleBase::ModuleScope::ModuleScope(const ModuleBase& module, const std::string& part)
    : outer_(std::exchange(innermost, &module)), scope_(joined(module.path(outer_), part)) {}
ModuleBase::ModuleScope::~ModuleScope() { innermost = outer_; }

void ModuleBase::rethrow_with_path(const Error& e) {
  const std::string& path = Scope::path();
  const std::string_view message = e.what();
  const auto begins_with_path = [&](char next) {
    return message.starts_with(path) && message.size() > path.size() && message[path.size()] == next;
  };
  if (path.empty() || typeid(e) != typeid(Error) || begins_with_path(':') || begins_with_path('.')) throw;
  throw Error(fmt::format("{}: {}", path, message));
}

Tensor ModuleBase::add_parameter(Parameter p) {
  require_new(p.name);
  const std::string path = joined(this->path(), p.name);
  if (!p.tensor) throw Error(fmt::format("parameter '{}' has no Tensor: give one of its type", path));
  if (!p.buffer && !is_floating(p.tensor.dtype()))
    throw Error(fmt::format("parameter '{}' is {}, which cannot be trained: add_buffer() is for such data",
                            path, to_string(p.tensor.type())));
  p.tensor.impl()->set_source(std::make_shared<NoContents>(path));
  p.tensor.impl()->requires_grad = !p.buffer;
  parameters_.push_back(std::make_unique<Parameter>(std::move(p)));
  return parameters_.back()->tensor;
}

Tensor ModuleBase::add_parameter(const std::string& name, const Tensor& initial) {
  return add_parameter(beginning_with(name, initial));
}

Tensor ModuleBase::add_buffer(const std::string& name, const Tensor& initial) {
  Parameter p = beginning_with(name, initial);
  p.buffer = true;
  return add_parameter(std::move(p));
}

void ModuleBase::visit(const std::string& prefix,
                       const std::function<void(ModuleBase&, const std::string&)>& f) {
  f(*this, prefix);
  for (ModuleBase* child : children_) child->visit(prefix + child->name_ + ".", f);
}

std::vector<std::pair<std::string, Parameter*>> ModuleBase::named_parameters() {
  std::vector<std::pair<std::string, Parameter*>> result;
  visit("", [&](ModuleBase& module, const std::string& prefix) {
    for (auto& p : module.parameters_) result.emplace_back(prefix + p->name, p.get());
  });
  return result;
}

std::vector<FileLayout> ModuleBase::file_layouts() const { return {}; }

std::vector<std::string> ModuleBase::torch_counters() {
  std::vector<std::string> result;
  visit("", [&](ModuleBase& module, const std::string& prefix) {
    for (const std::string& name : module.torch_counters_) result.push_back(prefix + name);
  });
  return result;
}

void ModuleBase::initialize(std::uint64_t seed) {
  if (Trace::active())
    throw Error("initialize() is called in a traced function, where it would work only once");
  const std::string here = this->path();
  for (auto& [below, p] : named_parameters()) {
    const std::string path = joined(here, below);
    if (!p->initialize)
      throw Error(
          fmt::format("parameter '{}' has no function `initialize`; it makes the initial contents", path));
    const Tensor begins = p->initialize(p->tensor.type(), path, seed);
    if (!begins || begins.type() != p->tensor.type())
      throw Error(fmt::format("parameter '{}' is {}, and its function `initialize` gives {}", path,
                              to_string(p->tensor.type()), begins ? to_string(begins.type()) : "nothing"));
    set_contents(*p, path, begins);
  }
}

StateDict ModuleBase::state() {
  StateDict result;
  for (auto& [path, p] : named_parameters()) {
    Tensor copy = Tensor::empty(p->tensor.type());
    std::memcpy(copy.data(), std::as_const(p->tensor).data(), copy.bytes().size());
    result.emplace(path, std::move(copy));
  }
  return result;
}

void ModuleBase::load(const StateDict& state) {
  if (Trace::active()) throw Error("load() is called in a traced function, where it would work only once");
  std::string problems;
  const std::string here = path();
  StateDict left = below(here, state);
  std::map<std::string, std::pair<Parameter*, Tensor>> values;
  for (auto& [path, p] : named_parameters()) {
    const auto found = left.find(path);
    if (found == left.end())
      problems += fmt::format("\n  missing: {}", path);
    else if (!found->second)
      problems += fmt::format("\n  without a value: {}", path);
    else if (found->second.type() != p->tensor.type())
      problems += fmt::format("\n  mismatched: {} is {}, the model's {}", path,
                              to_string(found->second.type()), to_string(p->tensor.type()));
    if (found == left.end()) continue;
    values[joined(here, path)] = {p, found->second};
    left.erase(found);
  }
  for (const auto& [path, tensor] : left)
    if (!path.starts_with(kOptimizerPath)) problems += fmt::format("\n  unexpected: {}", path);
  if (!problems.empty()) throw Error("the state does not fit the model:" + problems);
  for (const auto& [path, value] : values) value.second.data();  // throws Error if it has no contents yet
  for (const auto& [path, value] : values) set_contents(*value.first, path, value.second);
}

void ModuleBase::requires_grad(bool on) {
  for (auto& [path, p] : named_parameters())
    if (!p->buffer) p->tensor.requires_grad(on);
}

void ModuleBase::train(bool on) {
  training_ = on;
  for (ModuleBase* child : children_) child->train(on);
}

ModeScope::ModeScope(ModuleBase& module, bool training) {
  module.visit("", [this](ModuleBase& m, const std::string&) { before_.emplace_back(&m, m.training_); });
  module.train(training);
}
ModeScope::~ModeScope() {
  for (const auto& [module, training] : before_) module->training_ = training;
}

}  // namespace tandem::nn
