#pragma once
#include <cstddef>
#include <string>

#include <tandem/core/graph/tensor.h>

namespace tandem {

/// Names a module while it lives: ops inside get "outer.name" as their path, traced or eager.
class Scope {
 public:
  explicit Scope(const std::string& name);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  /// The current path, "layer1.0.conv2".
  static const std::string& path();

 private:
  std::size_t outer_length_;
};

/// In the loss of a TrainStep: delivers `tensor` as result `name`, in addition to the loss. Throws Error
/// outside a trace, and if the trace has a result of this name.
void deliver(const std::string& name, const Tensor& tensor);

}  // namespace tandem
