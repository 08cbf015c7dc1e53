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

/// Shared by the files onednn*.cpp: turns a oneDNN computation into a Primitive.
namespace tandem::engine::onednn {

using dnnl::memory;

const dnnl::engine& engine();
/// Returns attributes that make the library take its scratchpads from the caller, which plans their memory.
dnnl::primitive_attr attributes();

/// Return the operand's layout in memory, and the layout to request for it: the same, or the library's choice
/// if `any` or Operand::repack is set. A null operand has an empty layout.
memory::desc describe(const Operand& operand);
memory::desc request(const Operand& operand, bool any = false);
memory::desc request(const Operand* operand);

/// The contents of a Primitive: memory slots and the library calls (steps) that work on them. A slot is an
/// operand, a part of an operand, or a range of the workspace.
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
    int piece = 0;  // the piece of the result that this step helps to compute
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

/// Shrinks `operand` to one of `parts` equal parts along `axis`. Returns the distance of the parts in bytes.
std::int64_t take_part(Operand& operand, std::size_t axis, int parts);
std::int64_t bytes_of(const Operand& operand);
/// Returns the best number of pieces to cut a result into along its first axis, so that each piece fits into
/// the caches. A piece has at least `least` rows along that axis.
int pieces_of(const Operand& result, std::int64_t least = 1);

/// One operand of a plan's main step.
struct Role {
  int name;                // DNNL_ARG_...
  const Operand* outside;  // layout of one part in the caller's memory; null: the operand is absent
  memory::desc wanted;     // layout that the library wants
  bool output = false;
  std::int64_t part_bytes = 0;  // distance of the parts; 0: every part reads, or adds to, the whole operand
};

/// Makes a plan that runs `main` once for each part, and repacks operands whose wanted layout differs from
/// their layout in memory. The parts share their scratch memory.
Primitive::Plan make_plan(const dnnl::primitive_desc_base& main, const std::vector<Role>& roles,
                          int parts = 1);

/// Returns the first implementation whose name starts with `wanted`; if there is none, the library's own
/// choice; if the library cannot do the operation at all, an empty descriptor. `hint` is the forward
/// descriptor, for gradients. Version 2 of the API describes an operation before it looks for implementations
/// (and keeps pointing at that description); version 3 does both at once.
template <class P, class... Args, class... Hint>
typename P::primitive_desc find_implementation(std::string_view wanted, const dnnl::primitive_attr& attr,
                                               std::tuple<Args...> args, const Hint&... hint) {
  return std::apply(
      [&](const auto&... a) {
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

/// Calls `make` with the team's number of threads set. Returns null if the library lacks the types or the
/// operation; throws Error on other failures.
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
