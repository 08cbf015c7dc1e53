#pragma once
#include <concepts>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>

#include <tandem/core/graph/tensor.h>

namespace tandem {

/// The loss of a batch: a function of the batch's tensors, one parameter for each, or of all of them as one
/// list.
///
///     [&](const Tensor& images, const Tensor& labels) { return cross_entropy(net(images), labels); }
///     [&](const Tensors& batch) { return cross_entropy(net(batch[0]), batch[1]); }
class BatchLoss {
  template <std::size_t> using Parameter = const Tensor&;
  template <class F, std::size_t... i> static constexpr bool takes(std::index_sequence<i...>) {
    return std::is_invocable_r_v<Tensor, F&, Parameter<i>...>;
  }
  // How many Tensors F takes; 0 if it takes something else, or more than 16.
  template <class F, std::size_t n = 1> static constexpr std::size_t parameters_of() {
    if constexpr (n > 16) {
      return 0;
    } else if constexpr (takes<F>(std::make_index_sequence<n>())) {
      return n;
    } else {
      return parameters_of<F, n + 1>();
    }
  }

 public:
  BatchLoss() = default;
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, BatchLoss> &&
           std::is_invocable_r_v<Tensor, F&, const Tensors&>) BatchLoss(F&& f)  // NOLINT: converts
      : function_(std::forward<F>(f)) {}
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, BatchLoss> && !std::is_invocable_v<F&, const Tensors&> &&
           parameters_of<F>() > 0) BatchLoss(F&& f)  // NOLINT: converts
      : parameters_(parameters_of<F>()) {
    if constexpr (requires { f == nullptr; })
      if (f == nullptr) return;  // an empty std::function
    function_ = [f = std::forward<F>(f)](const Tensors& batch) mutable {
      return call(f, batch, std::make_index_sequence<parameters_of<F>()>());
    };
  }
  /// Refuses a function of nothing, in words.
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, BatchLoss> && std::is_invocable_r_v<Tensor, F&> &&
           !std::is_invocable_v<F&, const Tensors&> && parameters_of<F>() == 0)
      BatchLoss(F&&) {  // NOLINT: converts
    static_assert(!std::is_invocable_v<F&>, "a loss takes at least one Tensor, whose rows are the samples");
  }

  explicit operator bool() const { return bool(function_); }
  /// Throws Error if the number of tensors is not that of the function's parameters.
  Tensor operator()(const Tensors& batch) const {
    if (parameters_ > 0 && batch.size() != parameters_) refuse(batch);
    return function_(batch);
  }

 private:
  template <class F, std::size_t... i>
  static Tensor call(F& f, const Tensors& batch, std::index_sequence<i...>) {
    return f(batch[i]...);
  }
  [[noreturn]] void refuse(const Tensors& batch) const;

  std::function<Tensor(const Tensors&)> function_;
  std::size_t parameters_ = 0;  // 0: one list
};

}  // namespace tandem
