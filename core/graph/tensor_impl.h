#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <tandem/core/graph/graph.h>
#include <tandem/core/graph/tensor.h>

namespace tandem {

namespace engine {
struct History;

/// Where the elements of a Tensor are, if not in its buffer.
class ElementSource {
 public:
  virtual ~ElementSource() = default;
  /// Puts the elements into the Tensor's buffer. Throws Error if there are none yet.
  virtual void fetch(Tensor::Impl& tensor) = 0;
};
}  // namespace engine

/// What a Tensor refers to: memory, a value of a Trace, or a state by path.
struct Tensor::Impl {
  TensorType type;
  std::shared_ptr<std::byte> buffer;  // eager: 64-byte aligned elements
  std::uint64_t trace = 0;            // traced: the number of the Trace whose value this is, from 1
  engine::ValueId value = -1;
  std::string state;           // a state's path; empty otherwise
  std::uint64_t version = 0;   // counts eager assigns
  std::uint64_t changes = 0;   // counts these, and each time that the elements could have been written
  bool requires_grad = false;  // of a state: it is trained
  std::shared_ptr<engine::History> history;  // how an eager Tensor came to be (ops/eager.h)
  std::size_t output = 0;                    // which of the history's outputs this is
  Tensor grad;

  /// From now on the newest elements come from `source`; null: they are in the buffer.
  void set_source(std::shared_ptr<engine::ElementSource> source) {
    source_ = std::move(source);
    elsewhere_.store(source_ != nullptr, std::memory_order_release);
  }
  bool has_source(const engine::ElementSource* source) const { return source_.get() == source; }
  /// Puts the newest elements into the buffer. Threads can call it at once.
  void fetch() {
    if (elsewhere_.load(std::memory_order_acquire)) fetch_from_source();
  }

 private:
  void fetch_from_source();
  std::shared_ptr<engine::ElementSource> source_;
  std::atomic<bool> elsewhere_{false};
};

namespace engine {
/// Returns an eager Tensor that shares the elements of x.
Tensor without_history(const Tensor& x);
/// Sets all elements of an eager state.
void set_elements(Tensor::Impl& state, const void* elements);
}  // namespace engine

}  // namespace tandem
