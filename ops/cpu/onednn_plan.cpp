#include <tandem/ops/cpu/onednn_plan.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace tandem::engine::onednn {
namespace {

memory::data_type type_of(const Operand& operand) {
  return operand.dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}
}  // namespace

bool supported(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16; }

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

memory::desc describe(const Operand& operand) { return {operand.extents, type_of(operand), operand.strides}; }

memory::desc request(const Operand& operand, bool any) {
  if (!operand.repack && !any) return describe(operand);
  return {operand.extents, type_of(operand), memory::format_tag::any};
}
memory::desc request(const Operand* operand) { return operand ? request(*operand) : memory::desc(); }

std::int64_t take_part(Operand& operand, std::size_t axis, int parts) {
  operand.extents[axis] /= parts;
  return operand.extents[axis] * operand.strides[axis] * size_of(operand.dtype);
}

std::int64_t bytes_of(const Operand& o) {
  return std::accumulate(o.extents.begin(), o.extents.end(), size_of(o.dtype), std::multiplies<>());
}

int pieces_of(const Operand& result, std::int64_t least) {
  constexpr std::int64_t kPiece = 8 << 20;
  int pieces = 1;
  while (bytes_of(result) > pieces * kPiece && result.extents[0] % (2 * pieces) == 0 &&
         result.extents[0] / (2 * pieces) >= least)
    pieces *= 2;
  return pieces;
}

std::size_t Primitive::Plan::add_view(const memory::desc& desc, int operand, std::int64_t offset) {
  slots.push_back({desc, operand, offset});
  return slots.size() - 1;
}

std::size_t Primitive::Plan::add_scratch(const memory::desc& desc) {
  slots.push_back({desc, kWorkspace, workspace});
  workspace += align_up(static_cast<std::int64_t>(desc.get_size()));
  return slots.size() - 1;
}

void Primitive::Plan::add_step(const dnnl::primitive_desc_base& computation,
                               std::vector<Argument> arguments) {
  if (const memory::desc scratch = computation.scratchpad_desc(); scratch.get_size() > 0)
    arguments.push_back({DNNL_ARG_SCRATCHPAD, add_scratch(scratch)});
  steps.push_back({computation, std::move(arguments)});
}

void Primitive::Plan::add_reorder(std::size_t from, std::size_t to) {
  const dnnl::reorder::primitive_desc pd(engine(), slots[from].desc, engine(), slots[to].desc, attributes());
  add_step(pd, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void Primitive::Plan::add_sum(std::size_t to, std::size_t from) {
  const std::vector<memory::desc> both{slots[to].desc, slots[from].desc};
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::sum::primitive_desc pd(engine(), slots[to].desc, {1.0F, 1.0F}, both, attributes());
#else
  const dnnl::sum::primitive_desc pd(slots[to].desc, {1.0F, 1.0F}, both, engine(), attributes());
#endif
  add_step(pd, {{DNNL_ARG_MULTIPLE_SRC, to}, {DNNL_ARG_MULTIPLE_SRC + 1, from}, {DNNL_ARG_DST, to}});
}

Primitive::Plan make_plan(const dnnl::primitive_desc_base& main, const std::vector<Role>& roles, int parts) {
  Primitive::Plan plan;
  plan.implementation = main.impl_info_str();
  std::vector<Primitive::Plan::Argument> scratchpad;
  if (const memory::desc scratch = main.scratchpad_desc(); scratch.get_size() > 0)
    scratchpad.push_back({DNNL_ARG_SCRATCHPAD, plan.add_scratch(scratch)});

  struct Bound {
    const Role* role;
    int operand;
    bool repacked;
    std::size_t inside = 0, outside = 0, partial = 0;  // slots; `partial` holds a result before it is added
  };
  std::vector<Bound> bound;
  for (const Role& role : roles) {
    if (!role.outside) continue;
    Bound b{&role, static_cast<int>(bound.size()), role.wanted != describe(*role.outside)};
    if (b.repacked) b.inside = plan.add_scratch(role.wanted);
    if (role.output && role.part_bytes == 0 && parts > 1) b.partial = plan.add_scratch(role.wanted);
    bound.push_back(b);
  }
  const bool in_pieces = std::all_of(roles.begin(), roles.end(), [](const Role& role) {
    return !role.outside || !role.output || role.part_bytes == bytes_of(*role.outside);
  });
  if (in_pieces) plan.pieces = parts;
  for (int part = 0; part < parts; ++part) {
    const std::size_t first = plan.steps.size();
    std::vector<Primitive::Plan::Argument> arguments = scratchpad;
    std::vector<std::pair<std::size_t, std::size_t>> sums, results;
    for (Bound& b : bound) {
      const Role& role = *b.role;
      const bool whole = role.part_bytes == 0, adds = whole && role.output && part > 0;
      if (part == 0 || !whole) {
        b.outside = plan.add_view(describe(*role.outside), b.operand, part * role.part_bytes);
        if (!b.repacked) b.inside = b.outside;
        if (b.repacked && !role.output) plan.add_reorder(b.outside, b.inside);
      }
      arguments.push_back({role.name, adds ? b.partial : b.inside});
      if (adds) sums.emplace_back(b.inside, b.partial);
      if (b.repacked && role.output && (!whole || part + 1 == parts))
        results.emplace_back(b.inside, b.outside);
    }
    plan.steps.push_back({main, std::move(arguments)});
    for (const auto& [to, from] : sums) plan.add_sum(to, from);
    for (const auto& [from, to] : results) plan.add_reorder(from, to);
    if (in_pieces)
      for (std::size_t s = first; s < plan.steps.size(); ++s) plan.steps[s].piece = part;
  }
  return plan;
}

}  // namespace tandem::engine::onednn
