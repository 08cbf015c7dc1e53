#include <tandem/ops/cpu/tiled_expression.h>

#include <algorithm>
#include <numeric>

#include <tandem/core/base/contains.h>
#include <tandem/ops/cpu/tile_kernels.h>
#include <tandem/ops/pointwise_math.h>

namespace tandem::engine {
namespace {

using Code = PointwiseCode;

constexpr std::int64_t kTile = 1024;                // most elements of a tile
constexpr std::int64_t kLine = 64 / sizeof(float);  // elements of a cache line
// Elements of all slots together: about the size of the first-level cache.
constexpr std::int64_t kRegisters = 16384;

}  // namespace

struct TiledExpression::Run {
  const void* const* in;
  void* out;  // null if a visitor gets the tiles
  float* slots;
  float* shown;
};

std::optional<TiledExpression> TiledExpression::make(const PointwiseExpression& expression, TypesView inputs,
                                                     const TensorType& output) {
  for (std::int64_t most = kTile; most >= 64; most /= 2) {
    TiledExpression tiled(expression, inputs, output, most);
    for (const auto& walk : tiled.walks_)
      if (!walk.fits()) return std::nullopt;
    tiled.find_numbers();
    tiled.find_repeating();
    if (tiled.place_once() && tiled.place_each()) return tiled;
  }
  return std::nullopt;
}

TiledExpression::TiledExpression(const PointwiseExpression& expression, TypesView inputs,
                                 const TensorType& output, std::int64_t most)
    : most_(most), expression_(expression), out_(output), places_(expression.size()) {
  for (const auto& t : inputs) {
    walks_.emplace_back(t.shape, out_.shape);
    dtypes_.push_back(t.dtype);
  }
  for (auto s = static_cast<int>(kRegisters / most); s-- > 0;) free_.push_back(s);
}

void TiledExpression::store(const void* const* in, void* out, std::int64_t begin, std::int64_t end) const {
  alignas(64) float slots[kRegisters];
  Run run{in, out, slots, nullptr};
  each_tile(run, begin, end, [&](std::int64_t first, std::int64_t n) {
    if (const Place& result = places_.back(); result.kind != Place::output)
      store_tile(out_.dtype, at(result, run, first), out, first, n);
  });
}

void TiledExpression::show(const void* const* in, std::int64_t begin, std::int64_t end,
                           const Visitor& visitor) const {
  alignas(64) float slots[kRegisters], shown[kTile];
  Run run{in, nullptr, slots, shown};
  const Place& result = places_.back();
  each_tile(run, begin, end, [&](std::int64_t first, std::int64_t n) {
    visitor(first, n, result.kind == Place::output ? shown : at(result, run, first));
  });
}

// Computes elements begin … end−1 and calls `done(first, n)` after each tile.
template <class F>
void TiledExpression::each_tile(Run& run, std::int64_t begin, std::int64_t end, const F& done) const {
  const std::int64_t steps = std::ssize(each_),
                     a_step = steps > 0 ? (tile_ + steps * kLine - 1) / (steps * kLine) * kLine
                                        : 0;  // whole lines
  for (std::int64_t next; begin < end; begin = next) {
    const std::int64_t edge = std::min(end, (begin / block_ + 1) * block_);
    for (const Step& step : once_) run_step(step, run, begin, std::min(tile_, out_.elements() - begin));
    for (next = begin; next < edge; next += tile_) {
      const std::int64_t n = std::min(tile_, edge - next), after = std::min(tile_, edge - next - n);
      std::int64_t fetched = 0;
      for (const Step& step : each_) {
        const std::int64_t until = std::min(after, fetched + a_step);
        fetch(run, next + n + fetched, next + n + until);
        fetched = until;
        run_step(step, run, next, n);
      }
      done(next, n);
    }
    next = edge;
  }
}

float* TiledExpression::at(const Place& p, const Run& run, std::int64_t begin) const {
  switch (p.kind) {
    case Place::slot: return run.slots + p.index * most_;
    case Place::input: return const_cast<float*>(static_cast<const float*>(run.in[p.index]) + begin);
    case Place::output: return run.out ? static_cast<float*>(run.out) + begin : run.shown;
    case Place::number: return const_cast<float*>(&numbers_[static_cast<std::size_t>(p.index)]);
    case Place::none: break;
  }
  return nullptr;
}

// Prefetches elements begin … end−1 of the next tile while this tile is computed. The hardware prefetches
// only along the reads that it sees.
void TiledExpression::fetch(const Run& run, std::int64_t begin, std::int64_t end) const {
  for (int k : fetched_)
    for (std::int64_t i = begin; i < end; i += kLine)
      __builtin_prefetch(static_cast<const float*>(run.in[k]) + i);
  if (run.out && places_.back().kind == Place::output)
    for (std::int64_t i = begin; i < end; i += kLine) __builtin_prefetch(static_cast<float*>(run.out) + i, 1);
}

void TiledExpression::run_step(const Step& step, const Run& run, std::int64_t begin, std::int64_t n) const {
  const PointwiseTerm& i = step.instruction;
  float* to = at(step.to, run, begin);
  const auto from = [&](std::size_t k) { return at(step.from[k], run, begin); };
  const auto operand = [&](std::size_t k) {
    return TileOperand{from(k), step.from[k].kind == Place::number};
  };
  switch (i.code) {
    case Code::input: {
      const auto k = static_cast<std::size_t>(i.a);
      return load_tile(dtypes_[k], walks_[k], run.in[k], begin, n, to);
    }
    case Code::constant: std::fill_n(to, n, static_cast<float>(i.immediate)); return;
    case Code::cast: return cast_tile(static_cast<DType>(i.b), from(0), to, n);
    default:
      if (step.then != Code::input)
        return compute_pair(i.code, step.then, step.comes_second, to, from(0), from(1), from(2), n);
      return compute_tile(i.code, to, operand(0), operand(1), operand(2), n);
  }
}

// Finds the constants that every reader can take as a single number: the reader has another operand, and that
// is not constant.
void TiledExpression::find_numbers() {
  const auto is_constant = [&](int r) {
    return expression_[static_cast<std::size_t>(r)].code == Code::constant;
  };
  std::vector<bool> number(expression_.size());
  for (std::size_t r = 0; r + 1 < expression_.size(); ++r) number[r] = is_constant(static_cast<int>(r));
  for (const PointwiseTerm& i : expression_) {
    const std::vector<int> all = reads(i);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const bool choice = i.code == Code::where;
      const bool alone =
          choice ? k > 0 && !is_constant(all[3 - k]) : all.size() == 2 && !is_constant(all[1 - k]);
      if (!alone) number[static_cast<std::size_t>(all[k])] = false;
    }
  }
  for (std::size_t r = 0; r < expression_.size(); ++r) {
    if (!number[r]) continue;
    places_[r] = {Place::number, static_cast<int>(numbers_.size())};
    numbers_.push_back(static_cast<float>(expression_[r].immediate));
  }
}

// Chooses a tile size that is a multiple of every short period, and finds the registers that are equal in all
// tiles of a block.
void TiledExpression::find_repeating() {
  std::vector<std::optional<BroadcastWalk::Repetition>> found;
  block_ = std::max<std::int64_t>(1, out_.elements());
  for (const auto& walk : walks_) {
    found.push_back(walk.repetition(most_));
    if (found.back()) block_ = std::min(block_, found.back()->block);
  }
  std::int64_t common = 1;
  std::vector<bool> repeats;
  for (const auto& f : found) {
    repeats.push_back(f && f->period <= block_ && std::lcm(common, f->period) <= most_);
    if (repeats.back()) common = std::lcm(common, f->period);
  }
  tile_ = most_ / common * common;
  const auto repeating = [&](int r) { return repeats_[static_cast<std::size_t>(r)]; };
  for (const auto& i : expression_)
    repeats_.push_back(i.code == Code::input ? repeats[static_cast<std::size_t>(i.a)]
                                             : std::ranges::all_of(reads(i), repeating));
  last_use_.assign(expression_.size(), expression_.size());  // stays so if never read, as the result is
  for (std::size_t r = 0; r < expression_.size(); ++r)
    for (int o : reads(expression_[r])) last_use_[static_cast<std::size_t>(o)] = r;
  for (std::size_t r = 0; r < expression_.size(); ++r)
    for (int o : reads(expression_[r]))
      if (!repeats_[r] && repeating(o)) last_use_[static_cast<std::size_t>(o)] = expression_.size();
}

// Gives register `r` a slot, after freeing the slots that it is the last to read. Returns false if none is
// free.
bool TiledExpression::take_slot(std::size_t r) {
  release_operands(r);
  if (free_.empty()) return false;
  places_[r] = {Place::slot, free_.back()};
  free_.pop_back();
  return true;
}

void TiledExpression::release_operands(std::size_t r) {
  std::vector<int> operands = reads(expression_[r]);
  std::sort(operands.begin(), operands.end());
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  for (int o : operands)
    if (const Place& p = places_[static_cast<std::size_t>(o)];
        p.kind == Place::slot && last_use_[static_cast<std::size_t>(o)] == r)
      free_.push_back(p.index);
}

TiledExpression::Step TiledExpression::step(std::size_t r, const std::vector<Place>& operands) const {
  Step s{expression_[r], {}, places_[r], Code::input, false};
  std::copy(operands.begin(), operands.end(), s.from.begin());
  return s;
}

std::vector<TiledExpression::Place> TiledExpression::operands_of_register(std::size_t r) const {
  std::vector<Place> operands;
  for (int o : reads(expression_[r])) operands.push_back(places_[static_cast<std::size_t>(o)]);
  return operands;
}

bool TiledExpression::place_once() {
  for (std::size_t r = 0; r < expression_.size(); ++r) {
    if (!repeats_[r] || places_[r].kind == Place::number) continue;
    const auto operands = operands_of_register(r);
    if (!take_slot(r)) return false;
    once_.push_back(step(r, operands));
  }
  return true;
}

bool TiledExpression::place_each() {
  std::int64_t last = -1;  // the register of the last step; −1 if that step already has two terms
  for (std::size_t r = 0; r < expression_.size(); ++r) {
    const PointwiseTerm& i = expression_[r];
    const auto k = static_cast<std::size_t>(i.a);
    if (repeats_[r]) continue;
    if (i.code == Code::input && walks_[k].contiguous() && dtypes_[k] == DType::f32) {
      places_[r] = {Place::input, i.a};
      fetched_.push_back(i.a);
      continue;
    }
    const auto operands = operands_of_register(r);
    if (r + 1 == expression_.size() && out_.dtype == DType::f32)
      places_[r] = {Place::output, 0};
    else if (!take_slot(r))
      return false;
    if (last >= 0 && join_pair(static_cast<std::size_t>(last), r)) {
      last = -1;
      continue;
    }
    each_.push_back(step(r, operands));
    last = static_cast<std::int64_t>(r);
  }
  return true;
}

// Makes the last step, which computes register p, also compute register r, if only r reads p.
bool TiledExpression::join_pair(std::size_t p, std::size_t r) {
  const PointwiseTerm &first = expression_[p], &second = expression_[r];
  const std::vector<int> operands = reads(second);
  const auto is_p = [&](int o) { return static_cast<std::size_t>(o) == p; };
  if (!pairs_first(first.code) || !pairs_second(second.code) || last_use_[p] != r ||
      std::count_if(operands.begin(), operands.end(), is_p) != 1)
    return false;
  Step joined = each_.back();
  joined.then = second.code;
  joined.comes_second = operands.size() == 2 && is_p(operands[1]);
  if (operands.size() == 2)
    joined.from[2] = places_[static_cast<std::size_t>(operands[joined.comes_second ? 0 : 1])];
  if (contains(joined.from, Place::number, &Place::kind)) return false;
  joined.to = places_[r];
  each_.back() = joined;
  return true;
}

}  // namespace tandem::engine
