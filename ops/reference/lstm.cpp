// One row after the other, step by step, in double.
#include <cmath>
#include <vector>

#include <tandem/ops/lstm_operands.h>
#include <tandem/ops/reference/kernels.h>

namespace tandem::engine {
namespace {

using Doubles = std::vector<double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A matrix (rows, columns) in memory.
template <class T> struct Matrix {
  const T* data;
  std::int64_t rows, columns;

  // y = y + matrix·x.
  template <class X> void add_product(const X* x, double* y) const {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) y[r] += static_cast<double>(data[r * columns + c]) * x[c];
  }
  // x = x + matrixᵀ·y.
  void add_transposed_product(const double* y, double* x) const {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) x[c] += static_cast<double>(data[r * columns + c]) * y[r];
  }
};

Doubles zeros(std::int64_t n) { return Doubles(static_cast<std::size_t>(n)); }
template <class T> Doubles copy(const T* from, std::int64_t n) { return Doubles(from, from + n); }
template <class T> void store(const Doubles& from, T* to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<T>(from[i]);
}

// What both kernels know of a launch.
template <class T> struct Cell {
  const LstmForm& form;
  const LstmSize& size;
  const LstmOperands<T> o;
  const Matrix<T> hidden{o.hidden, size.gates(), size.outputs};
  const Matrix<T> projection{o.projection, size.outputs, size.cells};
  const Matrix<T> output_peephole{o.output_peephole, size.outputs, size.cells};

  double peephole_i(std::size_t k) const { return form.residual ? static_cast<double>(o.peephole_i[k]) : 0; }
  double peephole_f(std::size_t k) const { return form.residual ? static_cast<double>(o.peephole_f[k]) : 0; }
};

template <class T> void run_row(const Cell<T>& cell, std::int64_t n, const Launch& l) {
  const LstmForm& form = cell.form;
  const LstmSize& size = cell.size;
  const auto cells = static_cast<std::size_t>(size.cells), outputs = static_cast<std::size_t>(size.outputs);
  Doubles h = zeros(size.outputs), c = zeros(size.cells);
  const LstmOrder order{size.steps, form.reverse};
  for (std::int64_t step = 0; step < size.steps; ++step) {
    const std::int64_t t = order.at(step), place = n * size.steps + t;
    const bool runs = cell.o.has_step(n, t);
    Doubles gates = zeros(size.gates()), sums = zeros(size.outputs);
    if (!runs) {
      h = zeros(size.outputs), c = zeros(size.cells);
    } else {
      gates = copy(cell.o.gates + place * size.gates(), size.gates());
      if (step > 0) cell.hidden.add_product(h.data(), gates.data());
      Doubles tanh_c = zeros(size.cells);
      double *const f = gates.data() + cells, *const g = f + cells, *const o = g + cells;
      for (std::size_t k = 0; k < cells; ++k) {
        gates[k] = sigmoid(gates[k] + cell.peephole_i(k) * c[k]);
        f[k] = sigmoid(f[k] + cell.peephole_f(k) * c[k]);
        g[k] = std::tanh(g[k]);
        c[k] = f[k] * c[k] + gates[k] * g[k];
        tanh_c[k] = std::tanh(c[k]);
      }
      if (form.residual) {
        cell.output_peephole.add_product(c.data(), o);
        sums = copy(cell.o.shortcut + place * size.outputs, size.outputs);
        cell.projection.add_product(tanh_c.data(), sums.data());
        for (std::size_t p = 0; p < outputs; ++p) {
          o[p] = sigmoid(o[p]);
          h[p] = o[p] * sums[p];
        }
      } else {
        for (std::size_t k = 0; k < cells; ++k) {
          o[k] = sigmoid(o[k]);
          tanh_c[k] *= o[k];
        }
        h = form.projected ? zeros(size.outputs) : tanh_c;
        if (form.projected) cell.projection.add_product(tanh_c.data(), h.data());
      }
    }
    store(h, output<T>(l, 0) + place * size.outputs);
    store(c, output<T>(l, 1) + place * size.cells);
    store(gates, output<T>(l, 2) + place * size.gates());
    if (form.residual) store(sums, output<T>(l, 3) + place * size.outputs);
  }
}

template <class T> void differentiate_row(const Cell<T>& cell, std::int64_t n, const Launch& l) {
  const LstmForm& form = cell.form;
  const LstmSize& size = cell.size;
  const auto cells = static_cast<std::size_t>(size.cells), outputs = static_cast<std::size_t>(size.outputs);
  const T *const c_of_all = input<T>(l, form.operands()), *const dh_of_all = input<T>(l, form.operands() + 1);
  Doubles dh = zeros(size.outputs), dc = zeros(size.cells);  // from later steps
  const LstmOrder order{size.steps, form.reverse};
  for (std::int64_t step = size.steps - 1; step >= 0; --step) {
    const std::int64_t t = order.at(step), place = n * size.steps + t;
    Doubles gates = copy(cell.o.gates + place * size.gates(), size.gates()), dprojected = zeros(size.outputs);
    if (!cell.o.has_step(n, t)) {
      gates = zeros(size.gates()), dh = zeros(size.outputs), dc = zeros(size.cells);
    } else {
      const T* const c = c_of_all + place * size.cells;
      const T* const before =
          step > 0 ? c_of_all + (n * size.steps + order.at(step - 1)) * size.cells : nullptr;
      double *const f = gates.data() + cells, *const g = f + cells, *const o = g + cells;
      for (std::size_t p = 0; p < outputs; ++p)
        dh[p] += dh_of_all[place * size.outputs + static_cast<std::int64_t>(p)];
      Doubles dtanh = zeros(size.cells);
      if (form.residual) {
        const T* const sums = cell.o.shortcut + place * size.outputs;
        for (std::size_t p = 0; p < outputs; ++p) {
          dprojected[p] = dh[p] * o[p];
          o[p] = dh[p] * sums[p] * o[p] * (1 - o[p]);
        }
        cell.projection.add_transposed_product(dprojected.data(), dtanh.data());
        cell.output_peephole.add_transposed_product(o, dc.data());
      } else {
        dprojected = dh;
        if (form.projected)
          cell.projection.add_transposed_product(dh.data(), dtanh.data());
        else
          dtanh = dh;
        for (std::size_t k = 0; k < cells; ++k) {
          const double slope = dtanh[k];
          dtanh[k] = slope * o[k];
          o[k] = slope * std::tanh(static_cast<double>(c[k])) * o[k] * (1 - o[k]);
        }
      }
      for (std::size_t k = 0; k < cells; ++k) {
        const double y = std::tanh(static_cast<double>(c[k])),
                     was = before ? static_cast<double>(before[k]) : 0;
        const double i = gates[k], slope = dc[k] + dtanh[k] * (1 - y * y);
        dc[k] = slope * f[k];
        gates[k] = slope * g[k] * i * (1 - i);
        f[k] = slope * was * f[k] * (1 - f[k]);
        g[k] = slope * i * (1 - g[k] * g[k]);
        dc[k] += gates[k] * cell.peephole_i(k) + f[k] * cell.peephole_f(k);
      }
      dh = zeros(size.outputs);
      cell.hidden.add_transposed_product(gates.data(), dh.data());
    }
    store(gates, output<T>(l, 0) + place * size.gates());
    if (form.projected) store(dprojected, output<T>(l, 1) + place * size.outputs);
  }
}

template <class F> KernelPtr make_rows(const KernelSpec& spec, const LstmForm& form, const F& row) {
  const LstmSize size = lstm_size(form, spec.inputs);
  return make_for<float, double>(spec.inputs[0].dtype, [=](auto zero) {
    using T = decltype(zero);
    return make_kernel([=](const Launch& l) {
      const Cell<T> cell{form, size, LstmOperands<T>(form, size, l)};
      for (std::int64_t n = 0; n < size.rows; ++n) row(cell, n, l);
    });
  });
}

}  // namespace

KernelPtr make_lstm_reference(const KernelSpec& spec) {
  return make_rows(spec, static_cast<const LstmOp&>(spec.op).form,
                   [](const auto& cell, std::int64_t n, const Launch& l) { run_row(cell, n, l); });
}

KernelPtr make_lstm_grad_reference(const KernelSpec& spec) {
  return make_rows(spec, static_cast<const LstmGradOp&>(spec.op).form,
                   [](const auto& cell, std::int64_t n, const Launch& l) { differentiate_row(cell, n, l); });
}

}  // namespace tandem::engine
