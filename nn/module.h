#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/scope.h>
#include <tandem/core/graph/tensor.h>

namespace tandem::nn {

struct FileLayout;  // nn/file_layout.h

/// A named tensor of a module, or a buffer: a tensor that is not trained, such as a running mean. Its Tensor
/// names a State, so the same module computes eagerly and inside a trace.
struct Parameter {
  std::string name;
  Tensor tensor;
  bool buffer = false;  ///< not trained; see also `Tensor::requires_grad`, which freezes a parameter
  /// Makes the initial contents from the full path and the model's seed; ops/init.h has the usual functions.
  /// It can throw any exception.
  std::function<Tensor(const TensorType&, const std::string& path, std::uint64_t seed)> initialize;
  /// The shape as (rows, height, width, channels), if an axis holds an image's channels; otherwise empty. In
  /// PyTorch's files channels come before height and width (torch_layout.h).
  Shape channels_last{};
};

/// What all modules have: a name in a tree of modules, parameters, and modes. `ModuleOf` adds what a module
/// computes. Modules cannot be copied or moved.
class ModuleBase {
 public:
  ModuleBase() = default;
  ModuleBase(ModuleBase& parent, std::string name);
  /// Removes the module from its parent, so that another child can take its name.
  virtual ~ModuleBase();
  ModuleBase(const ModuleBase&) = delete;
  ModuleBase& operator=(const ModuleBase&) = delete;

  /// Names every parameter by its path from the root and fills it; the values depend on this path and the
  /// seed alone. Throws Error if a parameter has no `initialize`.
  void initialize(std::uint64_t seed);

  /// Returns all parameters and buffers of this module and its children by path below this module, in order
  /// of declaration. `state` and `load` name them so too.
  std::vector<std::pair<std::string, Parameter*>> named_parameters();
  /// Returns the paths of PyTorch's batch counters, which only PyTorch's files have; Tandem keeps none.
  std::vector<std::string> torch_counters();
  /// Returns how the files of other libraries hold this module's weights. Only the module that is loaded or
  /// saved is asked, not its children.
  virtual std::vector<FileLayout> file_layouts() const;
  /// Returns copies of all parameters and buffers by path. Throws Error before `initialize` or `load`.
  StateDict state();
  /// Copies values in; takes paths from the root, too, as a TrainStep's state has them. Throws Error, and
  /// changes nothing, listing missing, unexpected and mismatched names.
  void load(const StateDict& state);

  /// Trains all parameters of this module and its children, or freezes them, in later traces and calls.
  void requires_grad(bool on = true);
  /// Switches this module and its children (dropout, batch norm) to training or evaluation.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  const std::string& name() const { return name_; }
  /// Returns the path from the root: "encoder.layer1"; empty for the root.
  std::string path() const { return path(nullptr); }
  /// Returns the children in order of declaration.
  const std::vector<ModuleBase*>& children() const { return children_; }

 protected:
  /// The ops that run while a ModuleScope exists carry the module's path, as do their errors.
  class ModuleScope {
   public:
    ModuleScope(const ModuleBase& module, const std::string& part);
    ~ModuleScope();
    ModuleScope(const ModuleScope&) = delete;
    ModuleScope& operator=(const ModuleScope&) = delete;

   private:
    const ModuleBase* outer_;
    Scope scope_;
  };
  /// Returns the scope of this module, for methods other than `forward`. With a `part`, that name follows the
  /// module's path:
  ///
  ///     Tensor encode(const Tensor& x) {
  ///       const auto scope = enter("encode");
  ///       return …;
  ///     }
  ModuleScope enter(const std::string& part = "") const { return {*this, part}; }

  /// Declares a parameter and returns its Tensor, for a member to hold; `*this` owns it. Throws Error if its
  /// name is empty, has a dot, or is taken. Its elements can be used after `initialize` or `load`.
  Tensor add_parameter(Parameter parameter);
  /// Declares a parameter, or a buffer, that begins with the given elements:
  ///
  ///     Tensor factor = add_parameter("factor", Tensor::full({DType::f32, {channels}}, 1));
  Tensor add_parameter(const std::string& name, const Tensor& initial);
  Tensor add_buffer(const std::string& name, const Tensor& initial);
  /// Call it where `e` is caught. Throws the Error again, and says in which module it was if it does not say
  /// so.
  [[noreturn]] static void rethrow_with_path(const Error& e);
  void add_torch_counter(const std::string& name) { torch_counters_.push_back(name); }

 private:
  friend class ModeScope;
  void require_new(const std::string& name) const;
  /// Returns the path of this module below `from`, or from the root if it is not below `from`.
  std::string path(const ModuleBase* from) const;
  /// Calls `f(module, prefix of its names)` for this module and its children.
  void visit(const std::string& prefix, const std::function<void(ModuleBase&, const std::string&)>& f);
  std::string name_;
  ModuleBase* parent_ = nullptr;
  std::vector<ModuleBase*> children_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::string> torch_counters_;
  bool training_ = true;
};

template <class Signature> class ModuleOf;

/// A part of a model that computes a Result of any number of Inputs. A child names its parent in its
/// constructor, so a model is a struct with plain members:
///
///     struct Net : nn::ModuleOf<Tensor(const Tensor& ids, const Tensor& features)> {
///       nn::Embedding words{*this, "words", {.count = 1000, .features = 32}};
///       nn::Linear head{*this, "head", {.in = 48, .out = 10}};
///       Tensor forward(const Tensor& ids, const Tensor& features) override {
///         return head(concat({mean(words(ids), {1}), features}, 1));
///       }
///     };
template <class Result, class... Inputs> class ModuleOf<Result(Inputs...)> : public ModuleBase {
 public:
  using ModuleBase::ModuleBase;
  virtual Result forward(Inputs... inputs) = 0;
  /// Runs `forward` under this module's path.
  Result operator()(Inputs... inputs) {
    const auto scope = enter();
    try {
      return forward(std::forward<Inputs>(inputs)...);
    } catch (const Error& e) {
      this->rethrow_with_path(e);
    }
  }

 protected:
  using Module = ModuleOf;  ///< so that a constructor can call `Module(parent, name)`
};

/// A module of one tensor:
///
///     struct Net : nn::Module {
///       nn::Linear hidden{*this, "hidden", {.in = 784, .out = 128}};
///       nn::Linear head{*this, "head", {.in = 128, .out = 10}};
///       Tensor forward(const Tensor& x) override { return head(relu(hidden(x))); }
///     };
using Module = ModuleOf<Tensor(const Tensor&)>;

/// Sets a module and all modules in it to training or evaluation; its destructor restores the former modes.
class ModeScope {
 public:
  ModeScope(ModuleBase& module, bool training);
  ~ModeScope();
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  std::vector<std::pair<ModuleBase*, bool>> before_;
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
