#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <dnnl.hpp>

#include <tandem/core/base/error.h>
#include <tandem/core/base/memory.h>
#include <tandem/core/base/team.h>
#include <tandem/ops/cpu/onednn.h>

/// What the files onednn*.cpp share: how a computation of oneDNN's becomes a Primitive.
namespace tandem::engine::onednn {

using dnnl::memory;

const dnnl::engine& engine();
/// Scratchpads are the planner's.
dnnl::primitive_attr attributes();

/// The layout in which the library is asked to take the operand: as it lies, or `any`, its own choice. None
/// for null.
memory::desc request(const Operand& operand, bool any = false);
memory::desc request(const Operand* operand);

/// What a Primitive is made of: memory slots and the steps that work on them. A slot is an operand, a part of
/// one, or lies in the workspace.
struct Primitive::Plan {
  struct Slot {
    memory::desc desc;
    int operand;  // kWorkspace: none
    std::int64_t offset;
  };
  static constexpr int kWorkspace = -1;
  struct Argument {
    int name;  // DNNL_ARG_...
    std::size_t slot;
  };
  struct Step {
    dnnl::primitive_desc_base computation;
    std::vector<Argument> arguments;
    int piece = 0;  // of the result, that is whole after it
  };
  std::vector<Slot> slots;
  std::int64_t workspace = 0;
  std::vector<Step> steps;
  int pieces = 1;
  std::string implementation;

  std::size_t add_view(const memory::desc& desc, int operand, std::int64_t offset);
  std::size_t add_scratch(const memory::desc& desc);
  void add_step(const dnnl::primitive_desc_base& computation, std::vector<Argument> arguments);
  void add_reorder(std::size_t from, std::size_t to);
  void add_sum(std::size_t to, std::size_t from);  ///< to += from
};

/// Makes `operand` one of `parts` along `axis`; the distance of the parts in bytes.
std::int64_t take_part(Operand& operand, std::size_t axis, int parts);
std::int64_t bytes_of(const Operand& operand);
/// Into how many parts along its first axis a result is best cut, that each may be in the caches; none has
/// fewer than `least` along it.
int pieces_of(const Operand& result, std::int64_t least = 1);

/// One operand of a plan's main step: its name, how a part of it lies outside, the layout that the library
/// wants, its direction, the distance of its parts in bytes. 0: every part reads the whole of it, or adds to
/// it.
struct Role {
  int name;
  const Operand* outside;  // null: absent
  memory::desc wanted;
  bool output = false;
  std::int64_t part_bytes = 0;
};

/// A plan whose main step is `main`, once for each part, on operands that are repacked where the wanted
/// layout differs. The parts share their scratch memory.
Primitive::Plan make_plan(const dnnl::primitive_desc_base& main, const std::vector<Role>& roles,
                          int parts = 1);

/// The first implementation whose name starts with `wanted`, or the library's own choice where there is none;
/// empty where it cannot do it at all. `hint`: the forward's descriptor, for gradients. The two APIs differ
/// in this: the second describes an operation before it looks for implementations (and keeps pointing at that
/// description), the third does both at once.
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

bool supported(DType dtype);

/// Prepares under the team; null where the library refuses.
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

inline PrimitivePtr finish(Primitive::Plan plan, const Team& team) {
  return std::make_unique<const Primitive>(std::move(plan), team.threads, team.callers);
}

}  // namespace tandem::engine::onednn
