#include <tandem/train/state_link.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tandem/core/base/error.h>
#include <tandem/core/graph/state_dict.h>

namespace tandem {
namespace {

class LostElements final : public engine::ElementSource {
 public:
  void fetch(Tensor::Impl& tensor) override {
    throw Error(fmt::format("'{}' was lost when the last run failed: load() another state", tensor.state));
  }
};

}  // namespace

void StateLink::add(const Tensors& models) {
  Linked linked{models, std::vector<std::uint64_t>(models.size())};
  for (const Tensor& t : models) {
    t.data();  // throws Error if it has no contents
    if (const TensorType& type = models[0].type();
        t.type() != type || t.impl()->state != models[0].impl()->state)
      throw Error(
          fmt::format("state '{}' is {}, and another model's '{}' is {}: models that train together must "
                      "have the same structure",
                      models[0].impl()->state, to_string(type), t.impl()->state, to_string(t.type())));
  }
  const auto [added, fresh] = states_.try_emplace(models.at(0).impl()->state, std::move(linked));
  for (std::size_t m = 0; fresh && m < models.size(); ++m)
    places_[models[m].impl().get()] = {&added->second, m};
}

StateDict StateLink::state() const {
  std::vector<StateDict> models;
  for (const auto& [path, linked] : states_) {
    models.resize(linked.models.size());
    for (std::size_t m = 0; m < models.size(); ++m) models[m].emplace(path, detach(linked.models[m]));
  }
  return models.empty() ? StateDict() : stack_states(models);
}

void StateLink::set(const StateDict& state) {
  for (auto& [path, linked] : states_) {
    const auto found = state.find(path);
    if (found == state.end()) continue;
    const auto models = std::ssize(linked.models);
    for (std::int64_t m = 0; m < models; ++m)
      assign(linked.models[static_cast<std::size_t>(m)],
             models > 1 ? unstack_state(found->second, m, models) : found->second);
  }
}

void StateLink::require_all(const StateDict& state) const {
  std::vector<std::string> problems;
  for (const auto& [path, linked] : states_) {
    TensorType type = linked.models[0].type();
    if (linked.models.size() > 1) type.shape.insert(type.shape.begin(), std::ssize(linked.models));
    const auto found = state.find(path);
    if (found == state.end())
      problems.push_back("missing " + path);
    else if (!found->second)
      problems.push_back(path + " was given no value");
    else if (found->second.type() != type)
      problems.push_back(
          fmt::format("{} is {}, the model's {}", path, to_string(found->second.type()), to_string(type)));
  }
  if (!problems.empty())
    throw Error(fmt::format("the state does not fit the model: {}", fmt::join(problems, "; ")));
}

void StateLink::require_used() const {
  for (const auto& [path, linked] : states_)
    if (const auto& impl = linked.models[0].impl();
        impl.use_count() == std::ranges::count(linked.models, impl, &Tensor::impl))
      throw Error(fmt::format(
          "the module of '{}' ended: make another TrainStep for the module that took its place", path));
}

void StateLink::connect(engine::Session* session) {
  session_ = session;
  by_id_.clear();
  for (auto& [path, linked] : states_) {
    linked.id = session->find_state(path);
    by_id_.emplace(linked.id, &linked);
    for (std::size_t m = 0; m < linked.models.size(); ++m) linked.sent[m] = linked.models[m].impl()->changes;
  }
}

bool StateLink::send() {
  bool any = false;
  for (auto& [path, linked] : states_)
    for (std::size_t m = 0; m < linked.models.size(); ++m) {
      const Tensor& t = linked.models[m];
      if (t.impl()->has_source(this) || t.impl()->changes == linked.sent[m]) continue;
      session_->write(linked.id, m, t.bytes());
      linked.sent[m] = t.impl()->changes;
      any = true;
    }
  return any;
}

void StateLink::changed(const std::vector<engine::StateId>& states) {
  for (const engine::StateId state : states) {
    const auto found = by_id_.find(state);
    if (found == by_id_.end()) continue;
    for (std::size_t m = 0; m < found->second->models.size(); ++m) {
      Tensor::Impl& impl = *found->second->models[m].impl();
      if (!impl.has_source(this)) impl.set_source(shared_from_this());
      ++impl.version;
      found->second->sent[m] = ++impl.changes;
    }
  }
}

void StateLink::disconnect() noexcept {
  if (session_ && session_->has_state()) try {
      for (const auto& [path, linked] : states_)
        for (const Tensor& t : linked.models)
          if (t.impl()->has_source(this)) t.data();
    } catch (const std::exception&) {  // `lose` marks those that are left
    }
  lose();
}

// Tensors and link hold each other as long as the link is a Tensor's source.
void StateLink::lose() {
  for (const auto& [path, linked] : states_)
    for (const Tensor& t : linked.models)
      if (t.impl()->has_source(this)) t.impl()->set_source(std::make_shared<LostElements>());
  session_ = nullptr;
}

void StateLink::fetch(Tensor::Impl& tensor) {
  const auto [linked, model] = places_.at(&tensor);
  session_->read(linked->id, model, {tensor.buffer.get(), static_cast<std::size_t>(tensor.type.bytes())});
}

}  // namespace tandem
