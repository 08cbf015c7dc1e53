#include <tandem/ops/pointwise.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include <tandem/core/clones.h>
#include <tandem/ops/cpu/kernels.h>
#include <tandem/ops/cpu/parallel.h>
#include <tandem/ops/cpu/vector_math.h>
#include <tandem/ops/cpu/walk.h>
#include <tandem/ops/pointwise_math.h>

namespace tandem {
namespace {

using Code = PointwiseCode;

constexpr std::int64_t kTile = 1024;  // elements, at most
constexpr std::int64_t kRegisters =
    16384;  // elements of all registers that live at once: near the first-level cache

// One instruction on a tile; an operand may be one number for all of it. `to` may be an operand: every
// element is read before it is written.
struct Operand {
  const float* data;
  bool constant;
};

template <Code code, bool ca, bool cb, bool cc>
[[gnu::always_inline]] inline void compute_elements(float* to, const float* a, const float* b, const float* c,
                                                    std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float y = operands_of(code) > 1 ? b[cb ? 0 : i] : 0.0f;
    const float z = operands_of(code) > 2 ? c[cc ? 0 : i] : 0.0f;
    to[i] = pointwise_element<code, VectorMath>(a[ca ? 0 : i], y, z);
  }
}

TANDEM_CLONES void compute_tile(Code code, float* to, Operand a, Operand b, Operand c, std::int64_t n) {
  visit_code(
      code, [&](auto fixed) __attribute__((always_inline)) {
        constexpr Code kCode = decltype(fixed)::value;
        constexpr int kOperands = operands_of(kCode);
        if constexpr (kOperands == 2) {
          if (a.constant) return compute_elements<kCode, true, false, false>(to, a.data, b.data, c.data, n);
          if (b.constant) return compute_elements<kCode, false, true, false>(to, a.data, b.data, c.data, n);
        }
        if constexpr (kOperands == 3) {
          if (b.constant) return compute_elements<kCode, false, true, false>(to, a.data, b.data, c.data, n);
          if (c.constant) return compute_elements<kCode, false, false, true>(to, a.data, b.data, c.data, n);
        }
        compute_elements<kCode, false, false, false>(to, a.data, b.data, c.data, n);
      });
}

// Elements begin … begin+n−1 of the output's order, from an input of any dtype.
void load_tile(DType dtype, const BroadcastWalk& walk, const void* from, std::int64_t begin, std::int64_t n,
               float* to) {
  visit_dtype(dtype, [&](auto zero) {
    using E = decltype(zero);
    walk.visit(begin, n,
               [&](std::int64_t done, std::int64_t count, std::int64_t offset, std::int64_t stride) {
                 const E* source = static_cast<const E*>(from) + offset;
                 float* target = to + done;
                 if constexpr (std::is_same_v<E, BFloat16>)
                   if (stride == 1) return bf16_to_floats(&source->bits, target, count);
                 if (stride == 1)
                   for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<float>(source[i]);
                 else
                   for (std::int64_t i = 0; i < count; ++i)
                     target[i] = static_cast<float>(source[i * stride]);
               });
  });
}

void store_tile(DType dtype, const float* from, void* to, std::int64_t begin, std::int64_t n) {
  visit_dtype(dtype, [&](auto zero) {
    using E = decltype(zero);
    E* target = static_cast<E*>(to) + begin;
    if constexpr (std::is_same_v<E, BFloat16>)
      floats_to_bf16(from, &target->bits, n);
    else
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
  enum Kind : std::uint8_t { none, slot, input, output, number } kind = none;
  int index = 0;
};

struct Step {
  PointwiseInstruction instruction;
  std::array<Place, 3> from;
  Place to;
};

// The program with a place for every register: what repeats from tile to tile is computed once, an input or
// the output that lies as the tile does is used where it is, and the rest share slots.
class TilePlan {
 public:
  static std::optional<TilePlan> make(const KernelSpec& spec) {
    for (std::int64_t most = kTile; most >= 64; most /= 2) {
      TilePlan plan(spec, most);
      for (const auto& walk : plan.walks_)
        if (!walk.fits()) return std::nullopt;
      plan.find_numbers();
      plan.find_repeating();
      if (plan.place_once() && plan.place_each()) return plan;
    }
    return std::nullopt;
  }

  std::int64_t tile() const { return tile_; }

  // Tiles first … last−1, on one thread.
  void run(const Launch& l, std::int64_t first, std::int64_t last) const {
    alignas(64) float slots[kRegisters];
    for (const Step& step : once_) run_step(step, l, slots, 0, std::min(tile_, out_.elements()));
    for (std::int64_t t = first; t < last; ++t) {
      const std::int64_t begin = t * tile_, n = std::min(tile_, out_.elements() - begin);
      const std::int64_t next = t + 1 < last ? std::min(tile_, out_.elements() - begin - n) : 0;
      for (std::int64_t k = 0, steps = std::ssize(each_); k < steps; ++k) {
        fetch(l, begin + n + next * k / steps, begin + n + next * (k + 1) / steps);
        run_step(each_[static_cast<std::size_t>(k)], l, slots, begin, n);
      }
      const Place& result = places_.back();
      if (result.kind != Place::output)
        store_tile(out_.dtype, at(result, l, slots, begin), l.out[0], begin, n);
    }
  }

 private:
  TilePlan(const KernelSpec& spec, std::int64_t most)
      : most_(most),
        program_(static_cast<const Pointwise&>(spec.op).program),
        out_(spec.outputs[0]),
        places_(program_.size()) {
    for (const auto& t : spec.inputs) {
      walks_.emplace_back(t.shape, out_.shape);
      dtypes_.push_back(t.dtype);
    }
    for (auto s = static_cast<int>(kRegisters / most); s-- > 0;) free_.push_back(s);
  }

  float* at(const Place& p, const Launch& l, float* slots, std::int64_t begin) const {
    switch (p.kind) {
      case Place::slot: return slots + p.index * most_;
      case Place::input: return const_cast<float*>(static_cast<const float*>(l.in[p.index]) + begin);
      case Place::output: return static_cast<float*>(l.out[0]) + begin;
      case Place::number: return const_cast<float*>(&numbers_[static_cast<std::size_t>(p.index)]);
      case Place::none: break;
    }
    return nullptr;
  }

  // Memory brings these elements of the next tile while this one is computed: by itself it follows what is
  // read.
  void fetch(const Launch& l, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t kLine = 64 / sizeof(float);
    for (int k : fetched_)
      for (std::int64_t i = begin; i < end; i += kLine)
        __builtin_prefetch(static_cast<const float*>(l.in[k]) + i);
    if (places_.back().kind == Place::output)
      for (std::int64_t i = begin; i < end; i += kLine)
        __builtin_prefetch(static_cast<float*>(l.out[0]) + i, 1);
  }

  void run_step(const Step& step, const Launch& l, float* slots, std::int64_t begin, std::int64_t n) const {
    const PointwiseInstruction& i = step.instruction;
    float* to = at(step.to, l, slots, begin);
    const auto from = [&](std::size_t k) { return at(step.from[k], l, slots, begin); };
    const auto operand = [&](std::size_t k) { return Operand{from(k), step.from[k].kind == Place::number}; };
    switch (i.code) {
      case Code::input: {
        const auto k = static_cast<std::size_t>(i.a);
        return load_tile(dtypes_[k], walks_[k], l.in[k], begin, n, to);
      }
      case Code::constant: std::fill_n(to, n, static_cast<float>(i.immediate)); return;
      case Code::cast: return cast_tile(static_cast<DType>(i.b), from(0), to, n);
      default: return compute_tile(i.code, to, operand(0), operand(1), operand(2), n);
    }
  }

  // The constants that every reader takes as one number: a second operand that varies stands beside them.
  void find_numbers() {
    const auto is_constant = [&](int r) {
      return program_[static_cast<std::size_t>(r)].code == Code::constant;
    };
    std::vector<bool> number(program_.size());
    for (std::size_t r = 0; r + 1 < program_.size(); ++r) number[r] = is_constant(static_cast<int>(r));
    for (const PointwiseInstruction& i : program_) {
      const std::vector<int> all = reads(i);
      for (std::size_t k = 0; k < all.size(); ++k) {
        const bool choice = i.code == Code::where;
        const bool alone =
            choice ? k > 0 && !is_constant(all[3 - k]) : all.size() == 2 && !is_constant(all[1 - k]);
        if (!alone) number[static_cast<std::size_t>(all[k])] = false;
      }
    }
    for (std::size_t r = 0; r < program_.size(); ++r) {
      if (!number[r]) continue;
      places_[r] = {Place::number, static_cast<int>(numbers_.size())};
      numbers_.push_back(static_cast<float>(program_[r].immediate));
    }
  }

  // Chooses tiles that are a multiple of every short period, and the registers that are alike in all of them.
  void find_repeating() {
    std::int64_t common = 1;
    std::vector<bool> repeats;
    for (const auto& walk : walks_) {
      const std::int64_t both =
          walk.contiguous() || walk.period() > most_ ? most_ + 1 : std::lcm(common, walk.period());
      repeats.push_back(both <= most_);
      if (repeats.back()) common = both;
    }
    tile_ = most_ / common * common;
    for (const auto& i : program_) {
      const std::vector<int> operands = reads(i);
      repeats_.push_back(i.code == Code::input ? repeats[static_cast<std::size_t>(i.a)]
                                               : std::all_of(operands.begin(), operands.end(), [&](int o) {
                                                   return repeats_[static_cast<std::size_t>(o)];
                                                 }));
    }
    last_use_.assign(program_.size(), program_.size());  // of what is never read: the result
    for (std::size_t r = 0; r < program_.size(); ++r)
      for (int o : reads(program_[r])) last_use_[static_cast<std::size_t>(o)] = r;
    for (std::size_t r = 0; r < program_.size(); ++r)
      for (int o : reads(program_[r]))
        if (!repeats_[r] && repeats_[static_cast<std::size_t>(o)])
          last_use_[static_cast<std::size_t>(o)] = program_.size();
  }

  // A slot for register `r`, after those it is the last to read are free.
  bool take_slot(std::size_t r) {
    release_operands(r);
    if (free_.empty()) return false;
    places_[r] = {Place::slot, free_.back()};
    free_.pop_back();
    return true;
  }

  void release_operands(std::size_t r) {
    std::vector<int> operands = reads(program_[r]);
    std::sort(operands.begin(), operands.end());
    operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
    for (int o : operands)
      if (const Place& p = places_[static_cast<std::size_t>(o)];
          p.kind == Place::slot && last_use_[static_cast<std::size_t>(o)] == r)
        free_.push_back(p.index);
  }

  Step step(std::size_t r, const std::vector<Place>& operands) const {
    Step s{program_[r], {}, places_[r]};
    std::copy(operands.begin(), operands.end(), s.from.begin());
    return s;
  }

  std::vector<Place> operands_of_register(std::size_t r) const {
    std::vector<Place> operands;
    for (int o : reads(program_[r])) operands.push_back(places_[static_cast<std::size_t>(o)]);
    return operands;
  }

  bool place_once() {
    for (std::size_t r = 0; r < program_.size(); ++r) {
      if (!repeats_[r] || places_[r].kind == Place::number) continue;
      const auto operands = operands_of_register(r);
      if (!take_slot(r)) return false;
      once_.push_back(step(r, operands));
    }
    return true;
  }

  bool place_each() {
    for (std::size_t r = 0; r < program_.size(); ++r) {
      const PointwiseInstruction& i = program_[r];
      const auto k = static_cast<std::size_t>(i.a);
      if (repeats_[r]) continue;
      if (i.code == Code::input && walks_[k].contiguous() && dtypes_[k] == DType::f32) {
        places_[r] = {Place::input, i.a};
        fetched_.push_back(i.a);
        continue;
      }
      const auto operands = operands_of_register(r);
      if (r + 1 == program_.size() && out_.dtype == DType::f32)
        places_[r] = {Place::output, 0};
      else if (!take_slot(r))
        return false;
      each_.push_back(step(r, operands));
    }
    return true;
  }

  std::int64_t most_;  // elements of a tile; a slot has room for them
  PointwiseProgram program_;
  TensorType out_;
  std::vector<BroadcastWalk> walks_;  // per input
  std::vector<DType> dtypes_;         // per input
  std::int64_t tile_ = kTile;
  std::vector<bool> repeats_;          // per register: alike in every tile
  std::vector<std::size_t> last_use_;  // per register: the one that frees its slot
  std::vector<Place> places_;          // per register
  std::vector<float> numbers_;
  std::vector<int> free_;
  std::vector<int> fetched_;  // inputs that are read where they are
  std::vector<Step> once_, each_;
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
