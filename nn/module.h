#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/graph/tensor.h>

namespace tandem::nn {

/// A named tensor of a module: trained (a parameter) or not (a buffer, such as a running mean). Its Tensor
/// names a State, so the same module computes eagerly and inside a trace.
struct Parameter {
  std::string name;
  Tensor tensor;
  bool trained = true;  ///< set it to false to freeze the parameter: later calls and traces use the new value
  /// Makes the initial contents from the full path and the model's seed; ops/init.h has the usual functions.
  /// It can throw any exception.
  std::function<Tensor(const TensorType&, const std::string& path, std::uint64_t seed)> initialize;
  /// The shape as (rows, height, width, channels), if an axis holds an image's channels; otherwise empty. In
  /// PyTorch's files channels come before height and width (torch_layout.h).
  Shape channels_last{};
};

/// A part of a model. A child names its parent in its constructor, so a model is a struct with plain members:
///
///     struct Net : nn::Module {
///       nn::Linear hidden{*this, "hidden", {.in = 784, .out = 128}};
///       nn::Linear head{*this, "head", {.in = 128, .out = 10}};
///       Tensor forward(const Tensor& x) override { return head(relu(hidden(x))); }
///     };
///
/// Modules cannot be copied or moved.
class Module {
 public:
  Module() = default;
  Module(Module& parent, std::string name);
  /// Removes the module from its parent, so that another child can take its name.
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  /// Runs `forward` under this module's name, so that nodes and errors carry its path.
  Tensor operator()(const Tensor& x);

  /// Names every parameter by its path and fills it; the values depend on path and seed alone. Throws Error
  /// if a parameter has no `initialize`.
  void initialize(std::uint64_t seed);

  /// Returns all parameters and buffers of this module and its children by path, in order of declaration.
  std::vector<std::pair<std::string, Parameter*>> named_parameters();
  /// Returns the paths of PyTorch's batch counters, which only PyTorch's files have; Tandem keeps none.
  std::vector<std::string> torch_counters();
  /// Returns copies of all parameters and buffers by path. Throws Error before `initialize` or `load`.
  StateDict state();
  /// Copies values in. Throws Error listing missing, unexpected and mismatched names.
  void load(const StateDict& state);

  /// Switches this module and its children (dropout, batch norm) to training or evaluation.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  const std::string& name() const { return name_; }
  /// Returns the children in order of declaration.
  const std::vector<Module*>& children() const { return children_; }

 protected:
  /// Declares a parameter; `*this` owns it. Throws Error if its name is empty, has a dot, or is taken.
  Tensor& add_parameter(Parameter parameter);
  void add_torch_counter(const std::string& name) { torch_counters_.push_back(name); }
  /// Returns the parameter declared `index`-th, from 0. Throws Error before `initialize` or `load`.
  const Tensor& parameter(std::size_t index) const;

 private:
  friend class ModeScope;
  void require_new(const std::string& name) const;
  /// Calls `f(module, prefix of its names)` for this module and its children.
  void visit(const std::string& prefix, const std::function<void(Module&, const std::string&)>& f);
  std::string name_;
  Module* parent_ = nullptr;
  std::vector<Module*> children_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::string> torch_counters_;
  bool training_ = true;
};

/// Sets a module and all modules in it to training or evaluation; its destructor restores the former modes.
class ModeScope {
 public:
  ModeScope(Module& module, bool training);
  ~ModeScope();
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> before_;
};

/// The dtype of the parameters that this thread declares (default f32).
DType default_dtype();
void set_default_dtype(DType dtype);

/// Sets the default dtype; its destructor restores the former one.
class DtypeScope {
 public:
  explicit DtypeScope(DType dtype) : before_(default_dtype()) { set_default_dtype(dtype); }
  ~DtypeScope() { set_default_dtype(before_); }
  DtypeScope(const DtypeScope&) = delete;
  DtypeScope& operator=(const DtypeScope&) = delete;

 private:
  const DType before_;
};

/// Returns the running model's seed, for layers that draw random numbers. In a trace it is an input (one per
/// model if several models train together); eagerly it is the value given to `set_seed`.
Tensor current_seed();
void set_seed(std::uint64_t seed);

}  // namespace tandem::nn
