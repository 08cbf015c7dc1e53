#include <tandem/nn/module.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <tandem/core/graph/trace.h>

namespace tandem::nn {
using namespace engine;
namespace {
thread_local DType parameter_dtype = DType::f32;
thread_local std::uint64_t eager_seed = 0;

const Tensor& contents(const Parameter& p, const std::string& path) {
  if (p.tensor.impl()->state.empty())
    throw Error(
        fmt::format("parameter '{}' has no contents yet: initialize() or load() the model first", path));
  return p.tensor;
}

// From now on the parameter's Tensor names the state `path`.
void set_contents(const Parameter& p, const std::string& path, const Tensor& value) {
  auto& impl = *p.tensor.impl();
  impl.state = path;
  impl.trained = impl.requires_grad = p.trained;
  ++impl.version;
  std::memcpy(impl.buffer.get(), value.data(), static_cast<std::size_t>(value.type().bytes()));
}
}  // namespace

DType default_dtype() { return parameter_dtype; }
void set_default_dtype(DType dtype) { parameter_dtype = dtype; }
void set_seed(std::uint64_t seed) { eager_seed = seed; }

Tensor current_seed() {
  if (Trace* trace = Trace::current()) return trace->input(kSeedInput, {DType::i64, {}}, /*per_model=*/true);
  Tensor seed = Tensor::empty({DType::i64, {}});
  seed.as<std::int64_t>()[0] = static_cast<std::int64_t>(eager_seed);
  return seed;
}

Module::Module(Module& parent, std::string name) : name_(std::move(name)), parent_(&parent) {
  parent.require_new(name_);
  parent.children_.push_back(this);
}

Module::~Module() {
  if (parent_) std::erase(parent_->children_, this);
  for (Module* child : children_) child->parent_ = nullptr;
}

void Module::require_new(const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos)
    throw Error(fmt::format(
        "'{}' cannot name a part of a module: a name must not be empty or have a dot. For parts layer.0, "
        "layer.1 … make a module 'layer' with parts 0, 1, …",
        name));
  if (kOptimizerPath.substr(0, kOptimizerPath.size() - 1) == name)
    throw Error(
        fmt::format("'{}' cannot name a part of a module: the optimizer's state has this name", name));
  if (std::ranges::any_of(children_, [&](const Module* c) { return c->name_ == name; }) ||
      std::ranges::any_of(parameters_, [&](const auto& p) { return p->name == name; }))
    throw Error(fmt::format("a module has two parts called '{}'", name));
}

Tensor Module::operator()(const Tensor& x) {
  for (const auto& p : parameters_)
    if (auto& impl = *p->tensor.impl(); !impl.state.empty() && impl.trained != p->trained)
      impl.trained = impl.requires_grad = p->trained;
  if (name_.empty()) return forward(x);
  const Scope scope(name_);
  return forward(x);
}

Tensor& Module::add_parameter(Parameter p) {
  require_new(p.name);
  parameters_.push_back(std::make_unique<Parameter>(std::move(p)));
  return parameters_.back()->tensor;
}

void Module::visit(const std::string& prefix, const std::function<void(Module&, const std::string&)>& f) {
  f(*this, prefix);
  for (Module* child : children_) child->visit(prefix + child->name_ + ".", f);
}

std::vector<std::pair<std::string, Parameter*>> Module::named_parameters() {
  std::vector<std::pair<std::string, Parameter*>> result;
  visit("", [&](Module& module, const std::string& prefix) {
    for (auto& p : module.parameters_) result.emplace_back(prefix + p->name, p.get());
  });
  return result;
}

std::vector<std::string> Module::torch_counters() {
  std::vector<std::string> result;
  visit("", [&](Module& module, const std::string& prefix) {
    for (const std::string& name : module.torch_counters_) result.push_back(prefix + name);
  });
  return result;
}

void Module::initialize(std::uint64_t seed) {
  for (auto& [path, p] : named_parameters()) {
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

StateDict Module::state() {
  StateDict result;
  for (auto& [path, p] : named_parameters()) {
    const Tensor& now = contents(*p, path);
    Tensor copy = Tensor::empty(now.type());
    std::memcpy(copy.data(), now.data(), static_cast<std::size_t>(now.type().bytes()));
    result.emplace(path, std::move(copy));
  }
  return result;
}

void Module::load(const StateDict& state) {
  std::string problems;
  StateDict left = state;
  for (auto& [path, p] : named_parameters()) {
    const auto found = left.find(path);
    if (found == left.end())
      problems += fmt::format("\n  missing: {}", path);
    else if (found->second.type() != p->tensor.type())
      problems += fmt::format("\n  mismatched: {} is {}, the model's {}", path,
                              to_string(found->second.type()), to_string(p->tensor.type()));
    if (found != left.end()) left.erase(found);
  }
  for (const auto& [path, tensor] : left)
    if (!path.starts_with(kOptimizerPath)) problems += fmt::format("\n  unexpected: {}", path);
  if (!problems.empty()) throw Error("the state does not fit the model:" + problems);
  for (auto& [path, p] : named_parameters()) set_contents(*p, path, state.at(path));
}

const Tensor& Module::parameter(std::size_t index) const {
  if (index >= parameters_.size())
    throw Error(
        fmt::format("module '{}' has no parameter {}: it declared {}", name_, index, parameters_.size()));
  const Parameter& p = *parameters_[index];
  return contents(p, name_.empty() ? p.name : name_ + "." + p.name);
}

void Module::train(bool on) {
  training_ = on;
  for (Module* child : children_) child->train(on);
}

ModeScope::ModeScope(Module& module, bool training) {
  module.visit("", [this](Module& m, const std::string&) { before_.emplace_back(&m, m.training_); });
  module.train(training);
}
ModeScope::~ModeScope() {
  for (const auto& [module, training] : before_) module->training_ = training;
}

}  // namespace tandem::nn
