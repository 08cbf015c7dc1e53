#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tandem/core/graph/tensor.h>

namespace tandem::nn {

/// A named tensor of a module: trained (parameter) or carried along (buffer). Its Tensor names a State,
/// so the same module computes eagerly and inside a trace.
struct Parameter {
  std::string name;
  Tensor tensor;
  bool trained = true;  ///< may be changed, to freeze a part: what is called or traced from then on follows
  /// Initial contents, from the full path and the model's seed; ops/init.h has the usual ones. Throws what it
  /// likes.
  std::function<Tensor(const TensorType&, const std::string& path, std::uint64_t seed)> initialize;
  /// Where it has an axis of an image's channels: its shape as (rows, height, width, channels). In PyTorch's
  /// files channels come before height and width (torch_layout.h).
  Shape channels_last{};
};

/// Part of a model. Children are members that name their parent, so a model is written as plain C++ members:
///
///     struct Net : nn::Module {
///       nn::Linear hidden{*this, "hidden", {.in = 784, .out = 128}};
///       nn::Linear head{*this, "head", {.in = 128, .out = 10}};
///       Tensor forward(const Tensor& x) override { return head(relu(hidden(x))); }
///     };
///
/// Modules stay where they are: they cannot be copied or moved.
class Module {
 public:
  Module() = default;
  Module(Module& parent, std::string name);
  /// Its parent has it no more: another may take its name.
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  /// `forward` under this module's name, so that nodes and errors carry its path.
  Tensor operator()(const Tensor& x);

  /// Names every parameter by its path and fills it: what is drawn depends on path and seed alone. Throws
  /// Error where a parameter has no `initialize`.
  void initialize(std::uint64_t seed);

  /// All parameters and buffers of this module and its children by path, in order of declaration.
  std::vector<std::pair<std::string, Parameter*>> named_parameters();
  /// Paths of what PyTorch counts batches in, and Tandem does not: it is in PyTorch's files alone.
  std::vector<std::string> torch_counters();
  /// All parameters and buffers by path: copies, which stay as they are now. Throws Error before `initialize`
  /// or `load`.
  StateDict state();
  /// Copies values in. Throws Error listing missing, unexpected and mismatched names.
  void load(const StateDict& state);

  /// Training or evaluation behavior (dropout, batch norm) of this module and its children.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  const std::string& name() const { return name_; }
  /// In order of declaration; each knows its name.
  const std::vector<Module*>& children() const { return children_; }

 protected:
  /// Declares a parameter; `*this` owns it. Throws Error where its name is empty, has a dot, or is taken.
  Tensor& add_parameter(Parameter parameter);
  void add_torch_counter(const std::string& name) { torch_counters_.push_back(name); }
  /// The parameter that was declared `index`-th. Throws Error before `initialize` or `load`.
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

/// While it lives, a module and all in it are in training or in evaluation; then each is as it was before.
class ModeScope {
 public:
  ModeScope(Module& module, bool training);
  ~ModeScope();
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> before_;
};

/// dtype of parameters declared from here on, on this thread (default f32).
DType default_dtype();
void set_default_dtype(DType dtype);

/// While it lives, another default dtype.
class DtypeScope {
 public:
  explicit DtypeScope(DType dtype) : before_(default_dtype()) { set_default_dtype(dtype); }
  ~DtypeScope() { set_default_dtype(before_); }
  DtypeScope(const DtypeScope&) = delete;
  DtypeScope& operator=(const DtypeScope&) = delete;

 private:
  const DType before_;
};

/// The seed of the model that is running, for layers that draw: an input of a trace (one per model under
/// batching), or what `set_seed` gave when eager.
Tensor current_seed();
void set_seed(std::uint64_t seed);

}  // namespace tandem::nn
