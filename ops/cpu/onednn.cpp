#include <tandem/ops/cpu/onednn.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>

#include <fmt/format.h>
#include <dnnl.hpp>

#include <tandem/core/error.h>
#include <tandem/core/memory.h>
#include <tandem/core/team.h>

namespace tandem::onednn {
namespace {

using dnnl::memory;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

// Scratchpads are the planner's.
dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// The first implementation whose name starts with `wanted`, or the library's own choice where there is none;
// empty where it cannot do it at all. `hint`: the forward's descriptor, for gradients. The two APIs differ in
// this: the second describes an operation before it looks for implementations (and keeps pointing at that
// description), the third does both at once.
template <class P, class... Args, class... Hint>
typename P::primitive_desc find_implementation(std::string_view wanted, std::tuple<Args...> args,
                                               const Hint&... hint) {
  return std::apply(
      [&](const auto&... a) {
        const dnnl::primitive_attr attr = attributes();
#if DNNL_VERSION_MAJOR >= 3
        const auto first = [&] { return typename P::primitive_desc(engine(), a..., hint..., attr, true); };
#else
        const typename P::desc desc(a...);
        const auto first = [&] { return typename P::primitive_desc(desc, attr, engine(), hint..., true); };
#endif
        auto pd = first();
        while (pd && !std::string_view(pd.impl_info_str()).starts_with(wanted))
          if (!pd.next_impl()) return first();
        return pd;
      },
      args);
}

bool supported(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

memory::desc describe(const Operand& operand) {
  const auto type = operand.dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  return {operand.extents, type, operand.strides};
}

// The layout in which the library is asked to take the operand.
memory::desc request(const Operand& operand) {
  if (!operand.repack) return describe(operand);
  const auto type = operand.dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  return {operand.extents, type, memory::format_tag::any};
}
memory::desc request(const Operand* operand) { return operand ? request(*operand) : memory::desc(); }

}  // namespace

/// What a Primitive is made of: memory slots and the steps that work on them. The first slots are the
/// operands, the others lie in the workspace.
struct Primitive::Plan {
  struct Argument {
    int name;  // DNNL_ARG_...
    std::size_t slot;
  };
  struct Step {
    dnnl::primitive primitive;
    std::vector<Argument> arguments;
  };
  std::vector<memory::desc> slots;
  std::size_t operands = 0;
  std::vector<std::int64_t> offsets;  // of slots[operands ...] in the workspace
  std::int64_t workspace = 0;
  std::vector<Step> steps;
  std::string implementation;

  std::size_t add_scratch(const memory::desc& desc) {
    slots.push_back(desc);
    offsets.push_back(workspace);
    workspace += align_up(static_cast<std::int64_t>(desc.get_size()));
    return slots.size() - 1;
  }

  void add_step(dnnl::primitive primitive, std::vector<Argument> arguments, const memory::desc& scratchpad) {
    if (scratchpad.get_size() > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, add_scratch(scratchpad)});
    steps.push_back({std::move(primitive), std::move(arguments)});
  }

  void add_reorder(std::size_t from, std::size_t to) {
    const dnnl::reorder::primitive_desc pd(engine(), slots[from], engine(), slots[to], attributes());
    add_step(dnnl::reorder(pd), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, pd.scratchpad_desc());
  }
};

namespace {

// One operand of the main step: its name, how it lies outside, the layout the library wants, its direction.
struct Role {
  int name;
  const Operand* outside;  // null: absent
  memory::desc wanted;
  bool output = false;
};

// A plan whose main step is `P` on operands that are repacked where the wanted layout differs.
template <class P, class PD> Primitive::Plan make_plan(const PD& pd, const std::vector<Role>& roles) {
  Primitive::Plan plan;
  for (const Role& role : roles)
    if (role.outside) plan.slots.push_back(describe(*role.outside));
  plan.operands = plan.slots.size();

  std::vector<Primitive::Plan::Argument> arguments;
  std::vector<std::pair<std::size_t, std::size_t>> after;
  std::size_t slot = 0;
  for (const Role& role : roles) {
    if (!role.outside) continue;
    const std::size_t outside = slot++;
    std::size_t inside = outside;
    if (role.wanted != plan.slots[outside]) {
      inside = plan.add_scratch(role.wanted);
      if (role.output)
        after.emplace_back(inside, outside);
      else
        plan.add_reorder(outside, inside);
    }
    arguments.push_back({role.name, inside});
  }
  plan.add_step(P(pd), std::move(arguments), pd.scratchpad_desc());
  plan.implementation = pd.impl_info_str();
  for (const auto& [from, to] : after) plan.add_reorder(from, to);
  return plan;
}

// Prepares under the team; null where the library refuses.
template <class Prepare>
PrimitivePtr prepare(std::initializer_list<const Operand*> operands, const Team& team, const Prepare& make) {
  for (const Operand* operand : operands)
    if (operand && !supported(operand->dtype)) return nullptr;
  const TeamSize size(team.threads);
  try {
    return make();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_unimplemented) return nullptr;
    throw Error(fmt::format("oneDNN: {}", e.what()));
  }
}

PrimitivePtr finish(Primitive::Plan plan, const Team& team) {
  return std::make_unique<const Primitive>(std::move(plan), team.threads, team.callers);
}

struct WindowDims {
  memory::dims stride, dilation, padding;
  explicit WindowDims(const Window& w)
      : stride{w.stride.h, w.stride.w},
        dilation{w.dilation.h - 1, w.dilation.w - 1},  // oneDNN counts the gaps
        padding{w.padding.h, w.padding.w} {}
};

// The library's first choice, brgemm, is up to two times slower than its older direct kernels where a matrix
// has few rows (pixels) or little depth (channels): measured with 2.6 and 3.2 on images of 4×4 and below, and
// of 3 channels. Grouped and 1×1 convolutions have kernels of their own.
bool direct_is_faster(const Operand& image, const Operand& weights, const Operand& output) {
  const auto pixels = [](const Operand& o) { return o.extents[2] * o.extents[3]; };
  if (weights.extents.size() != 4 || pixels(weights) == 1) return false;
  return std::min(pixels(image), pixels(output)) <= 16 || image.extents[1] < 16;
}
std::string_view wanted_for(const Operand& image, const Operand& weights, const Operand& output) {
  return direct_is_faster(image, weights, output) ? "jit:avx512" : "";
}

dnnl::convolution_forward::primitive_desc find_forward(const Operand& image, const Operand& weights,
                                                       const Operand* bias, const Operand& output,
                                                       const WindowDims& w) {
  return find_implementation<dnnl::convolution_forward>(
      wanted_for(image, weights, output),
      std::tuple(dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, request(image),
                 request(weights), request(bias), request(output), w.stride, w.dilation, w.padding,
                 w.padding));
}

}  // namespace

// Everything a run needs, made once: memory objects whose addresses a run sets, and the argument lists.
// A run borrows one set, so that threads sharing the Primitive do not meet.
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
    : impl_(new Impl{std::move(plan), threads, std::vector<ArgumentSet>(static_cast<std::size_t>(callers))}) {
  for (ArgumentSet& set : impl_->sets) {
    for (const auto& desc : impl_->plan.slots)
      set.memories.push_back(memory(desc, engine(), DNNL_MEMORY_NONE));
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

int Primitive::run(std::span<void* const> operands, void* workspace) const noexcept {
  const Plan& plan = impl_->plan;
  const TeamSize team(impl_->threads);
  ArgumentSet& set = impl_->take();
  dnnl_status_t status = dnnl_success;
  const auto check = [&](dnnl_status_t s) { status = status == dnnl_success ? s : status; };
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    void* address = i < plan.operands ? operands[i]
                                      : static_cast<std::byte*>(workspace) + plan.offsets[i - plan.operands];
    check(dnnl_memory_set_data_handle(set.memories[i].get(), address));
  }
  for (std::size_t s = 0; s < plan.steps.size() && status == dnnl_success; ++s)
    check(dnnl_primitive_execute(plan.steps[s].primitive.get(), set.stream.get(),
                                 static_cast<int>(set.arguments[s].size()), set.arguments[s].data()));
  set.taken.store(false, std::memory_order_release);
  return static_cast<int>(status);
}

void Primitive::require_success(int status) const {
  if (status != static_cast<int>(dnnl_success))
    throw Error(fmt::format("oneDNN: {} failed with status {}", implementation(), status));
}

PrimitivePtr matmul(const Operand& a, const Operand& b, const Operand* bias, const Operand& c, Team team) {
  return prepare({&a, &b, bias, &c}, team, [&]() -> PrimitivePtr {
    const auto pd =
        find_implementation<dnnl::matmul>("", std::tuple(request(a), request(b), request(bias), request(c)));
    if (!pd) return nullptr;
    return finish(make_plan<dnnl::matmul>(pd, {{DNNL_ARG_SRC, &a, pd.src_desc()},
                                               {DNNL_ARG_WEIGHTS, &b, pd.weights_desc()},
                                               {DNNL_ARG_BIAS, bias, pd.bias_desc()},
                                               {DNNL_ARG_DST, &c, pd.dst_desc(), true}}),
                  team);
  });
}

PrimitivePtr convolution(const Operand& image, const Operand& weights, const Operand* bias,
                         const Operand& output, const Window& window, Team team) {
  return prepare({&image, &weights, bias, &output}, team, [&]() -> PrimitivePtr {
    const auto pd = find_forward(image, weights, bias, output, WindowDims(window));
    if (!pd) return nullptr;
    return finish(make_plan<dnnl::convolution_forward>(pd, {{DNNL_ARG_SRC, &image, pd.src_desc()},
                                                            {DNNL_ARG_WEIGHTS, &weights, pd.weights_desc()},
                                                            {DNNL_ARG_BIAS, bias, pd.bias_desc()},
                                                            {DNNL_ARG_DST, &output, pd.dst_desc(), true}}),
                  team);
  });
}

PrimitivePtr convolution_grad_input(const Operand& grad_output, const Operand& weights,
                                    const Operand& grad_image, const Window& window, Team team) {
  return prepare({&grad_output, &weights, &grad_image}, team, [&]() -> PrimitivePtr {
    const WindowDims w(window);
    const auto forward = find_forward(grad_image, weights, nullptr, grad_output, w);
    if (!forward) return nullptr;
    const auto pd = find_implementation<dnnl::convolution_backward_data>(
        wanted_for(grad_image, weights, grad_output),
        std::tuple(dnnl::algorithm::convolution_direct, request(grad_image), request(weights),
                   request(grad_output), w.stride, w.dilation, w.padding, w.padding),
        forward);
    if (!pd) return nullptr;
    return finish(make_plan<dnnl::convolution_backward_data>(
                      pd, {{DNNL_ARG_DIFF_DST, &grad_output, pd.diff_dst_desc()},
                           {DNNL_ARG_WEIGHTS, &weights, pd.weights_desc()},
                           {DNNL_ARG_DIFF_SRC, &grad_image, pd.diff_src_desc(), true}}),
                  team);
  });
}

PrimitivePtr convolution_grad_weight(const Operand& image, const Operand& grad_output,
                                     const Operand& grad_weights, const Operand* grad_bias,
                                     const Window& window, Team team) {
  return prepare({&image, &grad_output, &grad_weights, grad_bias}, team, [&]() -> PrimitivePtr {
    const WindowDims w(window);
    const auto forward = find_forward(image, grad_weights, grad_bias, grad_output, w);
    if (!forward) return nullptr;
    const auto pd = find_implementation<dnnl::convolution_backward_weights>(
        wanted_for(image, grad_weights, grad_output),
        std::tuple(dnnl::algorithm::convolution_direct, request(image), request(grad_weights),
                   request(grad_bias), request(grad_output), w.stride, w.dilation, w.padding, w.padding),
        forward);
    if (!pd) return nullptr;
    return finish(make_plan<dnnl::convolution_backward_weights>(
                      pd, {{DNNL_ARG_SRC, &image, pd.src_desc()},
                           {DNNL_ARG_DIFF_DST, &grad_output, pd.diff_dst_desc()},
                           {DNNL_ARG_DIFF_WEIGHTS, &grad_weights, pd.diff_weights_desc(), true},
                           {DNNL_ARG_DIFF_BIAS, grad_bias, pd.diff_bias_desc(), true}}),
                  team);
  });
}

}  // namespace tandem::onednn
