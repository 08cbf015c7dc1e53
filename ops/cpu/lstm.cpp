// An LSTM step by step: all rows together, so that each step is a few products with matrices that a launch
// packs once.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <tandem/core/base/clones.h>
#include <tandem/core/base/memory.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/onednn.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/vector_math.h>
#include <tandem/ops/lstm_operands.h>

namespace tandem::engine {
namespace {

[[gnu::always_inline]] inline float sigmoid(float x) { return 1.0f / (1.0f + VectorMath::exp(-x)); }

// The gates of n cells as functions of their sums, in place; c from the cells before, and tanh c.
TANDEM_CLONES void advance_cells(std::int64_t n, float* i, float* f, float* g, const float* peephole_i,
                                 const float* peephole_f, const float* before, float* c, float* tanh_c) {
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) {
    i[k] = sigmoid(i[k] + peephole_i[k] * before[k]);
    f[k] = sigmoid(f[k] + peephole_f[k] * before[k]);
    g[k] = VectorMath::tanh(g[k]);
    c[k] = f[k] * before[k] + i[k] * g[k];
    tanh_c[k] = VectorMath::tanh(c[k]);
  }
}

// o = σ(o), y = o·x.
TANDEM_CLONES void open_gates(std::int64_t n, float* o, const float* x, float* y) {
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) {
    o[k] = sigmoid(o[k]);
    y[k] = o[k] * x[k];
  }
}

// For y = o·x, o = σ(…): the gradient of x and, in place of o, that of the sum under σ.
TANDEM_CLONES void differentiate_gates(std::int64_t n, float* o, const float* x, const float* dy, float* dx) {
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) {
    const float slope = dy[k] * o[k];
    o[k] = slope * x[k] * (1.0f - o[k]);
    dx[k] = slope;
  }
}

TANDEM_CLONES void tanh_row(std::int64_t n, const float* x, float* y) {
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) y[k] = VectorMath::tanh(x[k]);
}

// The gradients of the gates' sums in place of the gates, and dc of the step before. `dc` has what comes from
// other gates and later steps, `dtanh` what comes through tanh c.
TANDEM_CLONES void differentiate_cells(std::int64_t n, float* i, float* f, float* g, const float* peephole_i,
                                       const float* peephole_f, const float* before, const float* tanh_c,
                                       const float* dtanh, float* dc) {
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) {
    const float slope = dc[k] + dtanh[k] * (1.0f - tanh_c[k] * tanh_c[k]);
    const float di = slope * g[k] * i[k] * (1.0f - i[k]), df = slope * before[k] * f[k] * (1.0f - f[k]);
    dc[k] = slope * f[k] + di * peephole_i[k] + df * peephole_f[k];
    g[k] = slope * i[k] * (1.0f - g[k] * g[k]);
    i[k] = di;
    f[k] = df;
  }
}

TANDEM_CLONES void add_to(std::int64_t n, const float* x, float* y) {
#pragma GCC ivdep
  for (std::int64_t k = 0; k < n; ++k) y[k] += x[k];
}

// The rows of one step: `stride` elements lie between one row and the next.
struct Rows {
  std::int64_t width, stride;
};

// Ranges of a launch's workspace, one after another.
class Workspace {
 public:
  std::int64_t take(std::int64_t bytes) { return std::exchange(bytes_, bytes_ + align_up(bytes)); }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

// y = x·matrix, or x·matrixᵀ, for the rows of one step at a time; or y = y + the product.
class StepProduct {
 public:
  StepProduct(std::int64_t rows, Rows x, Rows y, bool transposed, bool adds, int threads,
              Workspace& workspace) {
    const double flops = 2.0 * static_cast<double>(rows * x.width) * static_cast<double>(y.width);
    const auto step = [rows](Rows r) { return onednn::Operand{DType::f32, {rows, r.width}, {r.stride, 1}}; };
    const std::vector<std::int64_t> strides =
        transposed ? std::vector<std::int64_t>{1, x.width} : std::vector<std::int64_t>{y.width, 1};
    product_ = onednn::packed_matmul(step(x), {DType::f32, {x.width, y.width}, strides}, step(y), adds,
                                     {flops < kTeamFlops ? 1 : threads});
    if (!product_.product) return;
    packed_ = workspace.take(product_.packed_bytes);
    scratch_ = workspace.take(std::max(product_.pack->workspace(), product_.product->workspace()));
  }
  explicit operator bool() const { return product_.product != nullptr; }

  void pack(const float* matrix, std::byte* workspace) const {
    product_.pack->compute({matrix, workspace + packed_}, workspace + scratch_);
  }
  void multiply(const float* x, float* y, std::byte* workspace) const {
    product_.product->compute({x, workspace + packed_, y}, workspace + scratch_);
  }

 private:
  onednn::PackedMatmul product_;
  std::int64_t packed_ = 0, scratch_ = 0;
};

// What both kernels share. Arrays of all steps are (N,T,F): the rows of a step lie T·F elements apart.
class LstmKernel : public Kernel {
 public:
  LstmKernel(const KernelSpec& spec, const LstmForm& form)
      : form_(form),
        size_(lstm_size(form, spec.inputs)),
        order_{size_.steps, form.reverse},
        threads_(useful_threads(spec.threads, size_.rows * size_.gates() * 16)),
        zeros_(workspace_.take(size_.cells * kFloat)) {}
  std::int64_t workspace() const override { return workspace_.bytes(); }
  // False if oneDNN lacks a product.
  bool exists() const {
    return std::ranges::all_of(products(), [](const auto* product) { return !*product || **product; });
  }

 protected:
  using Product = std::unique_ptr<const StepProduct>;  // null: the form has none
  static constexpr std::int64_t kFloat = sizeof(float);
  Rows of_step(std::int64_t width) const { return {width, size_.steps * width}; }
  Rows output_gates() const { return {size_.outputs, size_.steps * size_.gates()}; }  // of Residual LSTM
  static Rows dense(std::int64_t width) { return {width, width}; }
  std::int64_t take(std::int64_t width) { return workspace_.take(size_.rows * width * kFloat); }

  // One launch: addresses in the arrays of all steps and in the workspace.
  struct Run {
    const LstmKernel& kernel;
    const Launch& l;
    const LstmOperands<float> o{kernel.form_, kernel.size_, l};
    std::byte* const workspace = static_cast<std::byte*>(l.workspace);
    const float* const zeros = at(kernel.zeros_);

    Run(const LstmKernel& kernel, const Launch& l) : kernel(kernel), l(l) {
      std::fill_n(at(kernel.zeros_), kernel.size_.cells, 0.0f);
    }
    float* at(std::int64_t offset) const { return reinterpret_cast<float*>(workspace + offset); }
    const float* peephole_i() const { return o.peephole_i ? o.peephole_i : zeros; }
    const float* peephole_f() const { return o.peephole_f ? o.peephole_f : zeros; }
    // Row n of step t of an array.
    template <class T> T* row(T* array, std::int64_t width, std::int64_t n, std::int64_t t) const {
      return array + (n * kernel.size_.steps + t) * width;
    }
    const float* cells_before(const float* c, std::int64_t n, std::int64_t step) const {
      return step == 0 ? zeros : row(c, kernel.size_.cells, n, kernel.order_.at(step - 1));
    }
  };

  template <class F> void each_row(const F& f) const {
    parallel_parts(threads_, size_.rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) f(n);
    });
  }

  void pack(const Run& run) const {
    const std::array<const float*, 3> matrices{run.o.hidden, run.o.projection, run.o.output_peephole};
    for (std::size_t i = 0; i < matrices.size(); ++i)
      if (const Product& product = *products()[i]) product->pack(matrices[i], run.workspace);
  }

  const LstmForm form_;
  const LstmSize size_;
  const LstmOrder order_;
  Workspace workspace_;
  Product hidden_, projection_, output_peephole_;

 private:
  std::array<const Product*, 3> products() const { return {&hidden_, &projection_, &output_peephole_}; }

  const int threads_;
  const std::int64_t zeros_;  // a row of cells
};

class ForwardKernel final : public LstmKernel {
 public:
  ForwardKernel(const KernelSpec& spec, const LstmForm& form)
      : LstmKernel(spec, form), cells_(take(size_.cells)) {
    const auto product = [&](Rows x, Rows y, bool adds) {
      return std::make_unique<StepProduct>(size_.rows, x, y, true, adds, spec.threads, workspace_);
    };
    hidden_ = product(of_step(size_.outputs), of_step(size_.gates()), true);
    if (form.projected) projection_ = product(dense(size_.cells), of_step(size_.outputs), form.residual);
    if (form.residual) output_peephole_ = product(of_step(size_.cells), output_gates(), true);
  }
  void run(const Launch& l) const override {
    const Run run(*this, l);
    pack(run);
    for (std::int64_t step = 0; step < size_.steps; ++step) advance(run, step);
  }

 private:
  void advance(const Run& run, std::int64_t step) const {
    const std::int64_t t = order_.at(step), outputs = size_.outputs, cells = size_.cells,
                       gates = size_.gates();
    float *const h = output<float>(run.l, 0), *const c = output<float>(run.l, 1),
                 *const activated = output<float>(run.l, 2),
                 *const sums = form_.residual ? output<float>(run.l, 3) : nullptr;
    if (activated != run.o.gates)
      each_row([&](std::int64_t n) {
        std::copy_n(run.row(run.o.gates, gates, n, t), gates, run.row(activated, gates, n, t));
      });
    if (step > 0) hidden_->multiply(h + order_.at(step - 1) * outputs, activated + t * gates, run.workspace);
    float* const of_cells = run.at(cells_);  // tanh c, or o·tanh c
    each_row([&](std::int64_t n) {
      float* const i = run.row(activated, gates, n, t);
      float *const f = i + cells, *const g = f + cells, *const o = g + cells;
      float *const new_c = run.row(c, cells, n, t), *const tanh_c = of_cells + n * cells;
      if (!run.o.has_step(n, t)) {
        std::fill_n(i, gates, 0.0f);
        std::fill_n(new_c, cells, 0.0f);
        std::fill_n(tanh_c, cells, 0.0f);
        std::fill_n(run.row(h, outputs, n, t), outputs, 0.0f);
        if (sums) std::fill_n(run.row(sums, outputs, n, t), outputs, 0.0f);
        return;
      }
      advance_cells(cells, i, f, g, run.peephole_i(), run.peephole_f(), run.cells_before(c, n, step), new_c,
                    tanh_c);
      if (!form_.residual)
        open_gates(cells, o, tanh_c, form_.projected ? tanh_c : run.row(h, outputs, n, t));
      else
        std::copy_n(run.row(run.o.shortcut, outputs, n, t), outputs, run.row(sums, outputs, n, t));
    });
    if (!form_.projected) return;
    projection_->multiply(of_cells, (form_.residual ? sums : h) + t * outputs, run.workspace);
    if (!form_.residual) return;
    output_peephole_->multiply(c + t * cells, activated + t * gates + 3 * cells, run.workspace);
    each_row([&](std::int64_t n) {
      if (run.o.has_step(n, t))
        open_gates(outputs, run.row(activated, gates, n, t) + 3 * cells, run.row(sums, outputs, n, t),
                   run.row(h, outputs, n, t));
    });
  }

  const std::int64_t cells_;  // (N,H) of the workspace
};

class BackwardKernel final : public LstmKernel {
 public:
  BackwardKernel(const KernelSpec& spec, const LstmForm& form)
      : LstmKernel(spec, form),
        dh_(take(size_.outputs)),
        dc_(take(size_.cells)),
        dtanh_(take(size_.cells)),
        tanh_(take(size_.cells)) {
    const auto product = [&](Rows x, std::int64_t width, bool adds) {
      return std::make_unique<StepProduct>(size_.rows, x, dense(width), false, adds, spec.threads,
                                           workspace_);
    };
    hidden_ = product(of_step(size_.gates()), size_.outputs, false);
    if (form.projected) projection_ = product(of_step(size_.outputs), size_.cells, false);
    if (form.residual) output_peephole_ = product(output_gates(), size_.cells, true);
  }
  void run(const Launch& l) const override {
    const Run run(*this, l);
    pack(run);
    std::fill_n(run.at(dh_), size_.rows * size_.outputs, 0.0f);
    std::fill_n(run.at(dc_), size_.rows * size_.cells, 0.0f);
    for (std::int64_t step = size_.steps - 1; step >= 0; --step) go_back(run, step);
  }

 private:
  void go_back(const Run& run, std::int64_t step) const {
    const std::int64_t t = order_.at(step), outputs = size_.outputs, cells = size_.cells,
                       gates = size_.gates();
    const float *const c = input<float>(run.l, form_.operands()), *const gradients = input<float>(
                                                                      run.l, form_.operands() + 1);
    float *const dgates = output<float>(run.l, 0), *const dprojected =
                                                       form_.projected ? output<float>(run.l, 1) : nullptr;
    float *const dh = run.at(dh_), *const dc = run.at(dc_), *const dtanh = run.at(dtanh_),
                 *const tanh_c = run.at(tanh_);

    // The gates of the outputs that are projected last; what is to be projected.
    each_row([&](std::int64_t n) {
      float *const to = run.row(dgates, gates, n, t), *const dh_row = dh + n * outputs;
      if (!run.o.has_step(n, t)) {
        std::fill_n(to, gates, 0.0f);
        std::fill_n(dh_row, outputs, 0.0f);
        std::fill_n(dc + n * cells, cells, 0.0f);
        if (dprojected) std::fill_n(run.row(dprojected, outputs, n, t), outputs, 0.0f);
        return;
      }
      if (const float* const from = run.row(run.o.gates, gates, n, t); from != to)
        std::copy_n(from, gates, to);
      add_to(outputs, run.row(gradients, outputs, n, t), dh_row);
      tanh_row(cells, run.row(c, cells, n, t), tanh_c + n * cells);
      if (form_.residual)
        differentiate_gates(outputs, to + 3 * cells, run.row(run.o.shortcut, outputs, n, t), dh_row,
                            run.row(dprojected, outputs, n, t));
      else if (form_.projected)
        std::copy_n(dh_row, outputs, run.row(dprojected, outputs, n, t));
    });
    if (projection_) projection_->multiply(dprojected + t * outputs, dtanh, run.workspace);
    if (output_peephole_) output_peephole_->multiply(dgates + t * gates + 3 * cells, dc, run.workspace);

    each_row([&](std::int64_t n) {
      if (!run.o.has_step(n, t)) return;
      float* const i = run.row(dgates, gates, n, t);
      float *const f = i + cells, *const g = f + cells, *const o = g + cells;
      float* const dtanh_row = dtanh + n * cells;
      if (!form_.residual)
        differentiate_gates(cells, o, tanh_c + n * cells, form_.projected ? dtanh_row : dh + n * outputs,
                            dtanh_row);
      differentiate_cells(cells, i, f, g, run.peephole_i(), run.peephole_f(), run.cells_before(c, n, step),
                          tanh_c + n * cells, dtanh_row, dc + n * cells);
    });
    if (step > 0) hidden_->multiply(dgates + t * gates, dh, run.workspace);
  }

  // Ranges of the workspace: gradients that come from the step after, (N,P) and (N,H); two arrays (N,H).
  const std::int64_t dh_, dc_, dtanh_, tanh_;
};

template <class K> KernelPtr made(const KernelSpec& spec, const LstmForm& form) {
  if (spec.inputs[0].dtype != DType::f32) return nullptr;
  auto kernel = std::make_unique<K>(spec, form);
  return kernel->exists() ? std::move(kernel) : nullptr;
}

}  // namespace

KernelPtr make_lstm_cpu(const KernelSpec& spec) {
  return made<ForwardKernel>(spec, static_cast<const LstmOp&>(spec.op).form);
}

KernelPtr make_lstm_grad_cpu(const KernelSpec& spec) {
  return made<BackwardKernel>(spec, static_cast<const LstmGradOp&>(spec.op).form);
}

}  // namespace tandem::engine
