#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tandem/core/graph/tensor.h>
#include <tandem/core/graph/tensor_impl.h>
#include <tandem/core/runtime/session.h>

namespace tandem {

/// Makes the parameters of models and the states of a Session one and the same. A run begins with what the
/// parameters were given since the last one; after it the parameters have what it trained. Elements are
/// copied only when they are read: a loop that only trains copies none.
class StateLink final : public engine::ElementSource, public std::enable_shared_from_this<StateLink> {
 public:
  /// Links a state: its Tensors, one per model. Does nothing if the state is linked.
  void add(const Tensors& models);
  bool contains(const std::string& path) const { return states_.contains(path); }
  /// Is this the linked Tensor of that state, of the first model?
  bool is(const std::string& path, const Tensor& tensor) const {
    return states_.at(path).models[0].impl() == tensor.impl();
  }
  /// Returns copies of all linked states, with a leading model axis if there are several models.
  StateDict state() const;
  /// Gives the Tensors the elements of a state as `state()` returns it. Ignores states that are not linked.
  void set(const StateDict& state);

  /// Throws Error, and lists what is wrong, unless `state` has all linked states, as `state()` returns them.
  void require_all(const StateDict& state) const;
  /// Throws Error if only this link still has a linked Tensor: its module ended.
  void require_used() const;

  /// From now on `session`, which must outlive its use here, has all linked states.
  void connect(engine::Session* session);
  /// Copies to the session what the Tensors were given since the last run. Returns whether there was
  /// anything.
  bool send();
  /// The session has new elements of these states.
  void changed(const std::vector<engine::StateId>& states);
  /// Copies all elements that only the session has, and forgets it. If memory for them is missing, they are
  /// lost.
  void disconnect() noexcept;
  /// The session's states are lost. Tensors whose elements only it had throw Error until they get others.
  void lose();

  void fetch(Tensor::Impl& tensor) override;

 private:
  struct Linked {
    Tensors models;
    std::vector<std::uint64_t> sent;  // Tensor::Impl::changes when the session got the elements
    engine::StateId id = -1;          // in the session
  };
  std::map<std::string, Linked> states_;
  std::unordered_map<engine::StateId, Linked*> by_id_;
  std::unordered_map<const Tensor::Impl*, std::pair<const Linked*, std::size_t>> places_;  // and which model
  engine::Session* session_ = nullptr;
};

}  // namespace tandem
