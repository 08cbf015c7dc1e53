#pragma once
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tandem/core/base/error.h>
#include <tandem/nn/module.h>

namespace tandem::nn {

template <class M>
concept HasOptions = requires {
  typename M::Options;
};

/// Modules of one type, named 0, 1, …, for a model whose depth is a number:
///
///     nn::ModuleList<nn::Linear> layers{*this, "layers"};
///     for (int i = 0; i < depth; ++i) layers.add({.in = 64, .out = 64});
///     for (nn::Linear& layer : layers) x = relu(layer(x));
template <class M> class ModuleList final : public ModuleBase {
 public:
  using ModuleBase::ModuleBase;

  /// Adds a module made of its options, or of the arguments that follow parent and name in its constructor.
  template <HasOptions T = M> T& add(typename T::Options options) { return make(std::move(options)); }
  template <class... Args>
  requires(!HasOptions<M>) M& add(Args&&... args) { return make(std::forward<Args>(args)...); }

  auto begin() { return modules_.begin(); }
  auto end() { return modules_.end(); }
  M& operator[](std::size_t i) { return modules_.at(i); }
  std::size_t size() const { return modules_.size(); }

 private:
  template <class... Args> M& make(Args&&... args) {
    return modules_.emplace_back(*this, std::to_string(size()), std::forward<Args>(args)...);
  }
  std::deque<M> modules_;  // which never moves its elements
};

/// Calls modules and functions in order. Each is named by its place, from 0, as in PyTorch:
///
///     nn::Sequential body{*this, "body"};
///     body.add<nn::Linear>({.in = 784, .out = 128});  // body.0.weight, body.0.bias
///     body.add(relu);
///     body.add<nn::Linear>({.in = 128, .out = 10});   // body.2.weight, body.2.bias
class Sequential final : public Module {
 public:
  using Module::Module;

  /// Adds a module as ModuleList does.
  template <HasOptions M> M& add(typename M::Options options) { return make<M>(std::move(options)); }
  template <class M, class... Args>
  requires(!HasOptions<M>) M& add(Args&&... args) { return make<M>(std::forward<Args>(args)...); }
  void add(std::function<Tensor(const Tensor&)> function) {
    if (!function) throw Error("a Sequential needs a function that is not empty");
    steps_.push_back(std::move(function));
  }

  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& step : steps_) y = step(y);
    return y;
  }

 private:
  template <class M, class... Args> M& make(Args&&... args) {
    auto module = std::make_unique<M>(*this, std::to_string(steps_.size()), std::forward<Args>(args)...);
    M& added = *module;
    modules_.push_back(std::move(module));
    steps_.emplace_back([&added](const Tensor& x) { return added(x); });
    return added;
  }
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

}  // namespace tandem::nn
