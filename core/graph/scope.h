#pragma once
#include <cstddef>
#include <string>

#include <tandem/core/graph/tensor.h>

namespace tandem {

/// While a Scope exists, ops get "outer.name" as their path, traced or eager. An empty name adds nothing.
class Scope {
 public:
  explicit Scope(const std::string& name);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  /// The current path, "layer1.0.conv2".
  static const std::string& path();
  /// Returns "encoder.words: ", with which a message about a module begins; nothing if the path is empty.
  static std::string prefix(const std::string& path) { return path.empty() ? "" : path + ": "; }

 private:
  std::size_t outer_length_;
};

/// While a NoGrad exists, no gradient passes through the ops that this thread applies: eager ops record no
/// history, and in a trace their results are detached. A trace that begins meanwhile, as in a TrainStep, is
/// not affected.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  /// Returns whether a NoGrad exists on this thread, in this trace.
  static bool active();

 private:
  bool outer_;
};

/// In the loss of a TrainStep: delivers `tensor` as result `name`, in addition to the loss. Throws Error
/// outside a trace, and if the trace has a result of this name.
void deliver(const std::string& name, const Tensor& tensor);

}  // namespace tandem
