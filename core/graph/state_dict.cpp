#include <tandem/core/graph/state_dict.h>

#include <algorithm>

#include <fmt/format.h>

#include <tandem/core/base/error.h>

namespace tandem {

StateDict stack_states(std::span<const StateDict> models) {
  if (models.empty()) throw Error("there is no state to stack: give one of each model");
  if (models.size() == 1) return models[0];
  StateDict stacked;
  for (const auto& [path, first] : models[0]) {
    Tensor all = Tensor::empty(with_models(first.type(), std::ssize(models)));
    std::byte* to = all.as<std::byte>();
    for (const auto& model : models) {
      const auto found = model.find(path);
      if (found == model.end() || found->second.type() != first.type() || model.size() != models[0].size())
        throw Error(fmt::format("the models to train side by side differ in state '{}'", path));
      to = std::copy_n(found->second.as<std::byte>(), first.type().bytes(), to);
    }
    stacked.emplace(path, std::move(all));
  }
  return stacked;
}

Tensor unstack_state(const Tensor& stacked, std::int64_t model, std::int64_t models) {
  if (models == 1) return stacked;
  TensorType type = stacked.type();
  if (type.shape.empty() || type.shape[0] != models)
    throw Error(fmt::format("{} has no leading axis of {} models", to_string(type), models));
  type.shape.erase(type.shape.begin());
  Tensor one = Tensor::empty(type);
  std::copy_n(stacked.as<std::byte>() + model * type.bytes(), type.bytes(), one.as<std::byte>());
  return one;
}

std::vector<StateDict> unstack_states(const StateDict& stacked, std::int64_t models) {
  std::vector<StateDict> result(static_cast<std::size_t>(models));
  for (const auto& [path, all] : stacked) try {
      for (std::int64_t m = 0; m < models; ++m) result[m].emplace(path, unstack_state(all, m, models));
    } catch (const Error& e) {
      throw Error(fmt::format("state '{}': {}", path, e.what()));
    }
  return result;
}

}  // namespace tandem
