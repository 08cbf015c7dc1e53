#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include <tandem/ops/cpu/onednn_plan.h>

namespace tandem::engine::onednn {

// Everything that a run needs, made once: argument lists, and memory objects whose addresses a run sets.
// A run borrows one set, so that threads that share the Primitive do not disturb each other.
struct ArgumentSet {
  std::atomic<bool> taken{false};
  dnnl::stream stream{engine()};
  std::vector<memory> memories;
  std::vector<std::vector<dnnl_exec_arg_t>> arguments;  // per step
};

struct Primitive::Impl {
  Plan plan;
  int threads;
  std::vector<ArgumentSet> sets;
  std::vector<dnnl::primitive> primitives;  // per step

  int run(std::span<void* const> operands, void* workspace, int first, int last) noexcept;
  ArgumentSet& take() {
    for (;;) {
      for (auto& set : sets)
        if (!set.taken.load(std::memory_order_relaxed) &&
            !set.taken.exchange(true, std::memory_order_acquire))
          return set;
      std::this_thread::yield();
    }
  }
};

Primitive::Primitive(Plan plan, int threads, int callers)
    : impl_(new Impl{
          std::move(plan), threads, std::vector<ArgumentSet>(static_cast<std::size_t>(callers)), {}}) {
  for (const auto& step : impl_->plan.steps) impl_->primitives.emplace_back(step.computation.get());
  for (ArgumentSet& set : impl_->sets) {
    for (const auto& slot : impl_->plan.slots)
      set.memories.emplace_back(memory(slot.desc, engine(), DNNL_MEMORY_NONE));
    for (const auto& step : impl_->plan.steps) {
      auto& list = set.arguments.emplace_back();
      for (const auto& argument : step.arguments)
        list.push_back({argument.name, set.memories[argument.slot].get()});
    }
  }
}
Primitive::~Primitive() = default;

std::int64_t Primitive::workspace() const { return impl_->plan.workspace; }
const char* Primitive::implementation() const { return impl_->plan.implementation.c_str(); }

int Primitive::pieces() const { return impl_->plan.pieces; }

int Primitive::run(std::span<void* const> operands, void* workspace) const noexcept {
  return impl_->run(operands, workspace, 0, pieces());
}
int Primitive::run_piece(std::span<void* const> operands, void* workspace, int piece) const noexcept {
  return impl_->run(operands, workspace, piece, piece + 1);
}
void Primitive::compute(std::initializer_list<const void*> operands, void* workspace) const {
  std::array<void*, 4> addresses{};
  std::ranges::transform(operands, addresses.begin(), [](const void* p) { return const_cast<void*>(p); });
  require_success(run({addresses.data(), operands.size()}, workspace));
}

// Runs the steps of pieces first … last−1.
int Primitive::Impl::run(std::span<void* const> operands, void* workspace, int first, int last) noexcept {
  const TeamSize team(threads);
  ArgumentSet& set = take();
  dnnl_status_t status = dnnl_success;
  const auto check = [&](dnnl_status_t s) { status = status == dnnl_success ? s : status; };
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const Plan::Slot& slot = plan.slots[i];
    void* base =
        slot.operand == Plan::kWorkspace ? workspace : operands[static_cast<std::size_t>(slot.operand)];
    check(dnnl_memory_set_data_handle(set.memories[i].get(), static_cast<std::byte*>(base) + slot.offset));
  }
  for (std::size_t s = 0; s < plan.steps.size() && status == dnnl_success; ++s)
    if (plan.steps[s].piece >= first && plan.steps[s].piece < last)
      check(dnnl_primitive_execute(primitives[s].get(), set.stream.get(),
                                   static_cast<int>(set.arguments[s].size()), set.arguments[s].data()));
  set.taken.store(false, std::memory_order_release);
  return static_cast<int>(status);
}

void Primitive::require_success(int status) const {
  if (status != static_cast<int>(dnnl_success))
    throw Error(fmt::format("oneDNN: {} failed with status {}", implementation(), status));
}

namespace {

// The library's first choice, brgemm, copies a row-major b by columns. If the rows of b are long, it is up to
// four times slower than the older kernels (measured with 2.6; equally fast with rows of 256).
std::string_view best_matmul(const Operand& b) {
  return b.strides[1] == 1 && b.extents[1] >= 512 ? "gemm:jit" : "";
}

}  // namespace

bool has_amx() {
  const auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & amx) == amx;
}

bool has_gemm() { return true; }

int gemm(const Matrix& a, const Matrix& b, float* c, std::int64_t c_stride, std::int64_t m, std::int64_t n,
         std::int64_t k, bool adds) noexcept {
  const auto form = [](const Matrix& matrix) { return matrix.transposed ? 'T' : 'N'; };
  return static_cast<int>(dnnl_sgemm(form(a), form(b), m, n, k, 1, a.data, a.stride, b.data, b.stride,
                                     adds ? 1.0f : 0.0f, c, c_stride));
}

PrimitivePtr matmul(const Operand& a, const Operand& b, const Operand* bias, const Operand& c, Team team) {
  return prepare({&a, &b, bias, &c}, team, [&]() -> PrimitivePtr {
    const int parts = pieces_of(c, 256);  // every part reads all of b, so parts have at least 256 rows
    Operand rows = a, results = c;
    const std::int64_t row_bytes = take_part(rows, 0, parts), result_bytes = take_part(results, 0, parts);
    const auto pd = find_implementation<dnnl::matmul>(
        best_matmul(b), attributes(), std::tuple(request(rows), request(b), request(bias), request(results)));
    if (!pd) return nullptr;
    return finish(make_plan(pd,
                            {{DNNL_ARG_SRC, &rows, pd.src_desc(), false, row_bytes},
                             {DNNL_ARG_WEIGHTS, &b, pd.weights_desc()},
                             {DNNL_ARG_BIAS, bias, pd.bias_desc()},
                             {DNNL_ARG_DST, &results, pd.dst_desc(), true, result_bytes}},
                            parts),
                  team);
  });
}

PackedMatmul packed_matmul(const Operand& a, const Operand& b, const Operand& c, bool adds, Team team) {
  PackedMatmul result;
  result.product = prepare({&a, &b, &c}, team, [&]() -> PrimitivePtr {
    dnnl::primitive_attr attr = attributes();
    if (adds) {
      dnnl::post_ops after;
      after.append_sum();
      attr.set_post_ops(after);
    }
    const auto pd = find_implementation<dnnl::matmul>(
        "", attr, std::tuple(request(a), request(b, true), memory::desc(), request(c)));
    if (!pd) return nullptr;
    result.packed_bytes = static_cast<std::int64_t>(pd.weights_desc().get_size());

    Primitive::Plan pack;
    pack.implementation = "reorder";
    pack.add_reorder(pack.add_view(describe(b), 0, 0), pack.add_view(pd.weights_desc(), 1, 0));
    result.pack = finish(std::move(pack), team);

    Primitive::Plan product;
    product.implementation = pd.impl_info_str();
    product.add_step(pd, {{DNNL_ARG_SRC, product.add_view(pd.src_desc(), 0, 0)},
                          {DNNL_ARG_WEIGHTS, product.add_view(pd.weights_desc(), 1, 0)},
                          {DNNL_ARG_DST, product.add_view(pd.dst_desc(), 2, 0)}});
    return finish(std::move(product), team);
  });
  return result;
}

}  // namespace tandem::engine::onednn
