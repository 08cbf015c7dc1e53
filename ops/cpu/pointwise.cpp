#include <tandem/ops/pointwise.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include <tandem/ops/cpu/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/vector_math.h>
#include <tandem/ops/cpu/walk.h>
#include <tandem/ops/pointwise_math.h>

namespace tandem {
namespace {

using Code = PointwiseCode;

constexpr std::int64_t kTile = 1024;  // elements: a tile's registers stay in the first-level cache
constexpr int kSlots = 16;            // registers of a tile that live at once

// One instruction on a tile. `to` may be an operand: every element is read before it is written.
TANDEM_CLONES void compute_tile(Code code, float* to, const float* a, const float* b, const float* c, std::int64_t n) {
  visit_code(code, [&](auto constant) __attribute__((always_inline)) {
    constexpr Code kCode = decltype(constant)::value;
    constexpr int kOperands = kCode == Code::where ? 3 : kCode >= Code::add ? 2 : 1;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const float y = kOperands > 1 ? b[i] : 0.0f;
      const float z = kOperands > 2 ? c[i] : 0.0f;
      to[i] = pointwise_element<kCode, VectorMath>(a[i], y, z);
    }
  });
}

// Elements begin … begin+n−1 of the output's order, from an input of any dtype.
void load_tile(DType dtype, const BroadcastWalk& walk, const void* from, std::int64_t begin, std::int64_t n, float* to) {
  visit_dtype(dtype, [&](auto zero) {
    using E = decltype(zero);
    walk.visit(begin, n, [&](std::int64_t done, std::int64_t count, std::int64_t offset, std::int64_t stride) {
      const E* source = static_cast<const E*>(from) + offset;
      float* target = to + done;
      if (stride == 1)
        for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<float>(source[i]);
      else
        for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<float>(source[i * stride]);
    });
  });
}

void store_tile(DType dtype, const float* from, void* to, std::int64_t begin, std::int64_t n) {
  visit_dtype(dtype, [&](auto zero) {
    using E = decltype(zero);
    E* target = static_cast<E*>(to) + begin;
    for (std::int64_t i = 0; i < n; ++i) target[i] = convert_element<E>(from[i]);
  });
}

void cast_tile(DType dtype, const float* from, float* to, std::int64_t n) {
  visit_dtype(dtype, [&](auto zero) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(convert_element<decltype(zero)>(from[i]));
  });
}

// Where the tile of a register is.
struct Place {
  enum Kind : std::uint8_t { none, slot, input, output } kind = none;
  int index = 0;
};

struct Step {
  PointwiseInstruction instruction;
  std::array<Place, 3> from;
  Place to;
};

// The program with a place for every register: what repeats from tile to tile is filled once, an input or the
// output that lies as the tile does is used where it is, and the rest share slots.
class TilePlan {
 public:
  static std::optional<TilePlan> make(const KernelSpec& spec) {
    TilePlan plan(spec);
    for (const auto& walk : plan.walks_)
      if (!walk.fits()) return std::nullopt;
    if (!plan.place()) return std::nullopt;
    return plan;
  }

  std::int64_t tile() const { return tile_; }

  // Tiles first … last−1, on one thread.
  void run(const Launch& l, std::int64_t first, std::int64_t last) const {
    alignas(64) float slots[kSlots * kTile];
    for (const Step& step : once_) {
      float* to = slots + step.to.index * kTile;
      if (step.instruction.code == Code::constant)
        std::fill_n(to, tile_, static_cast<float>(step.instruction.immediate));
      else
        load(step, l, 0, std::min(tile_, out_.elements()), to);
    }
    for (std::int64_t t = first; t < last; ++t) {
      const std::int64_t begin = t * tile_, n = std::min(tile_, out_.elements() - begin);
      const auto at = [&](const Place& p) -> float* {
        switch (p.kind) {
          case Place::slot: return slots + p.index * kTile;
          case Place::input: return const_cast<float*>(static_cast<const float*>(l.in[p.index]) + begin);
          case Place::output: return static_cast<float*>(l.out[0]) + begin;
          case Place::none: break;
        }
        return nullptr;
      };
      for (const Step& step : each_) {
        const auto& i = step.instruction;
        if (i.code == Code::input)
          load(step, l, begin, n, at(step.to));
        else if (i.code == Code::cast)
          cast_tile(static_cast<DType>(i.b), at(step.from[0]), at(step.to), n);
        else
          compute_tile(i.code, at(step.to), at(step.from[0]), at(step.from[1]), at(step.from[2]), n);
      }
      if (result_.kind != Place::output) store_tile(out_.dtype, at(result_), l.out[0], begin, n);
    }
  }

 private:
  explicit TilePlan(const KernelSpec& spec)
      : program_(static_cast<const Pointwise&>(spec.op).program), out_(spec.outputs[0]) {
    for (const auto& t : spec.inputs) {
      walks_.emplace_back(t.shape, out_.shape);
      dtypes_.push_back(t.dtype);
    }
    std::int64_t common = 1;  // of the periods that fit into a tile
    for (const auto& walk : walks_) {
      const std::int64_t both = walk.contiguous() || walk.period() > kTile ? kTile + 1 : std::lcm(common, walk.period());
      repeats_.push_back(both <= kTile);
      if (both <= kTile) common = both;
    }
    tile_ = kTile / common * common;
  }

  void load(const Step& step, const Launch& l, std::int64_t begin, std::int64_t n, float* to) const {
    const auto k = static_cast<std::size_t>(step.instruction.a);
    load_tile(dtypes_[k], walks_[k], l.in[k], begin, n, to);
  }

  bool is_filled_once(const PointwiseInstruction& i) const {
    return i.code == Code::constant || (i.code == Code::input && repeats_[static_cast<std::size_t>(i.a)]);
  }

  // Gives every register a place; false when the slots do not suffice.
  bool place() {
    const std::size_t count = program_.size();
    std::vector<std::size_t> last_use(count, 0);
    for (std::size_t r = 0; r < count; ++r)
      for (int o : reads(program_[r])) last_use[static_cast<std::size_t>(o)] = r;
    std::vector<int> free;
    for (int s = kSlots; s-- > 0;) free.push_back(s);
    std::vector<Place> places(count);
    for (std::size_t r = 0; r < count; ++r) {
      if (!is_filled_once(program_[r])) continue;
      if (free.empty()) return false;
      places[r] = {Place::slot, free.back()};
      free.pop_back();
      once_.push_back({program_[r], {}, places[r]});
    }
    for (std::size_t r = 0; r < count; ++r) {
      const auto& i = program_[r];
      if (is_filled_once(i)) continue;
      const auto k = static_cast<std::size_t>(i.a);
      if (i.code == Code::input && walks_[k].contiguous() && dtypes_[k] == DType::f32) {
        places[r] = {Place::input, i.a};
        continue;
      }
      Step step{i, {}, {}};
      const std::vector<int> operands = reads(i);
      for (std::size_t o = 0; o < operands.size(); ++o) step.from[o] = places[static_cast<std::size_t>(operands[o])];
      for (int o : operands) {
        const auto from = static_cast<std::size_t>(o);
        const bool held = places[from].kind == Place::slot && !is_filled_once(program_[from]);
        if (held && last_use[from] == r && std::find(free.begin(), free.end(), places[from].index) == free.end())
          free.push_back(places[from].index);
      }
      if (r + 1 == count && out_.dtype == DType::f32) {
        places[r] = {Place::output, 0};
      } else {
        if (free.empty()) return false;
        places[r] = {Place::slot, free.back()};
        free.pop_back();
      }
      step.to = places[r];
      each_.push_back(step);
    }
    result_ = places.back();
    return true;
  }

  PointwiseProgram program_;
  TensorType out_;
  std::vector<BroadcastWalk> walks_;
  std::vector<DType> dtypes_;
  std::vector<bool> repeats_;  // per input: the same in every tile
  std::int64_t tile_;
  std::vector<Step> once_, each_;
  Place result_;
};

}  // namespace

KernelPtr make_pointwise_cpu(const KernelSpec& spec) {
  if (pointwise_precision(spec.inputs, spec.outputs[0].dtype) == DType::f64) return nullptr;
  const std::int64_t n = spec.outputs[0].elements();
  if (n == 0) return make_kernel([](const Launch&) {});
  const auto plan = TilePlan::make(spec);
  if (!plan) return nullptr;
  const auto bytes = static_cast<std::int64_t>(spec.op.cost(spec.inputs, spec.outputs).bytes);
  const std::int64_t tiles = (n + plan->tile() - 1) / plan->tile();
  return make_kernel([plan = *plan, tiles, threads = useful_threads(spec.threads, bytes)](const Launch& l) {
    parallel_parts(threads, tiles, [&](std::int64_t first, std::int64_t last) { plan.run(l, first, last); });
  });
}

}  // namespace tandem
