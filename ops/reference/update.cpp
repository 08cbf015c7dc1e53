#include <tandem/ops/reference/kernels.h>
#include <tandem/ops/update_math.h>

namespace tandem::engine {
namespace {

template <class T> KernelPtr make_sgd(const KernelSpec& spec) {
  const auto& op = static_cast<const SgdUpdateOp&>(spec.op);
  const int states = op.has_velocity() ? 2 : 1;
  return make_kernel([options = op.options, states, n = spec.inputs[0].elements(),
                      guard = Guard(spec, op.guarded),
                      rate = Coefficient(spec, static_cast<std::size_t>(states) + 1)](const Launch& l) {
    const auto in = [&](int k, std::int64_t i) { return input<T>(l, k) + i; };
    const auto out = [&](int k, std::int64_t i) { return output<T>(l, k) + i; };
    guard.visit<T>(l, states, 0, n, [&](std::int64_t begin, std::int64_t end) {
      rate.visit<T>(l.in[states + 1], begin, end, [&](T lr, std::int64_t i, std::int64_t count) {
        if (states == 2)
          sgd_elements(options, lr, in(0, i), in(1, i), in(2, i), out(0, i), out(1, i), count);
        else
          sgd_elements(options, lr, in(0, i), in(1, i), out(0, i), count);
      });
    });
  });
}

template <class T> KernelPtr make_adam(const KernelSpec& spec) {
  const auto& op = static_cast<const AdamUpdateOp&>(spec.op);
  return make_kernel([options = op.options, n = spec.inputs[0].elements(), guard = Guard(spec, op.guarded),
                      t = Coefficient(spec, 4), lr = Coefficient(spec, 5),
                      steps = spec.inputs[4]](const Launch& l) {
    const auto in = [&](int k, std::int64_t i) { return input<T>(l, k) + i; };
    const auto out = [&](int k, std::int64_t i) { return output<T>(l, k) + i; };
    guard.visit<T>(l, 3, 0, n, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        adam_elements(AdamFactors<T>(options, t.at<double>(l.in[4], i) + 1, lr.at<double>(l.in[5], i)),
                      in(0, i), in(1, i), in(2, i), in(3, i), out(0, i), out(1, i), out(2, i), 1);
    });
    count_steps(steps, guard, l, 4, 3);
  });
}

template <class T> KernelPtr make_predict(const KernelSpec& spec) {
  return make_kernel([n = spec.inputs[0].elements(), coefficient = Coefficient(spec, 2)](const Launch& l) {
    coefficient.visit<T>(l.in[2], 0, n, [&](T c, std::int64_t i, std::int64_t count) {
      predict_elements(c, input<T>(l, 0) + i, input<T>(l, 1) + i, output<T>(l, 0) + i, count);
    });
  });
}

}  // namespace

KernelPtr make_sgd_update_reference(const KernelSpec& spec) {
  return spec.inputs[0].dtype == DType::f64 ? make_sgd<double>(spec) : make_sgd<float>(spec);
}

KernelPtr make_adam_update_reference(const KernelSpec& spec) {
  return spec.inputs[0].dtype == DType::f64 ? make_adam<double>(spec) : make_adam<float>(spec);
}

KernelPtr make_predict_reference(const KernelSpec& spec) {
  return spec.inputs[0].dtype == DType::f64 ? make_predict<double>(spec) : make_predict<float>(spec);
}

}  // namespace tandem::engine
