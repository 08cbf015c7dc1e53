#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <tandem/ops/cpu/walk.h>
#include <tandem/ops/pointwise_expression.h>

namespace tandem::engine {

/// A pointwise expression in f32, made ready to be evaluated tile by tile in the first-level cache: every
/// register has a place. What repeats from tile to tile (channels' parameters) is computed once, an input or
/// the output that lies as the tile does is used where it is, and the rest share slots.
class TiledExpression {
 public:
  /// The expression's value is of type `output`, rounded to its dtype. None where an input's broadcasting
  /// takes too many loops, or the expression too many registers.
  static std::optional<TiledExpression> make(const PointwiseExpression& expression,
                                             std::span<const TensorType> inputs, const TensorType& output);

  std::int64_t elements() const { return out_.elements(); }
  /// Elements of a tile: ranges that begin at its multiples, or where an input begins anew, are cut best.
  std::int64_t tile() const { return tile_; }

  /// Elements begin … end−1 of the value, into the array `out`. `in` has the address of each input.
  void store(const void* const* in, void* out, std::int64_t begin, std::int64_t end) const;

  /// The same elements, shown tile by tile: `visitor(begin, n, values)` gets n of them from `begin` on. Their
  /// dtype is f32, or rounded by the expression's last cast.
  template <class F>
  void visit(const void* const* in, std::int64_t begin, std::int64_t end, const F& visitor) const {
    show(in, begin, end, std::cref(visitor));  // a reference: nothing is allocated
  }

 private:
  // Where the tile of a register is.
  struct Place {
    enum Kind : std::uint8_t { none, slot, input, output, number } kind = none;
    int index = 0;
  };
  struct Step {
    PointwiseTerm instruction;
    std::array<Place, 3> from;
    Place to;
    // A second instruction on the value of the first, if not `input`; that may be its second operand.
    PointwiseCode then = PointwiseCode::input;
    bool comes_second = false;
  };
  struct Run;  // one thread's
  using Visitor = std::function<void(std::int64_t begin, std::int64_t n, const float* values)>;

  TiledExpression(const PointwiseExpression& expression, std::span<const TensorType> inputs,
                  const TensorType& output, std::int64_t most);
  void show(const void* const* in, std::int64_t begin, std::int64_t end, const Visitor& visitor) const;
  template <class F> void each_tile(Run& run, std::int64_t begin, std::int64_t end, const F& done) const;
  float* at(const Place& place, const Run& run, std::int64_t begin) const;
  void fetch(const Run& run, std::int64_t begin, std::int64_t end) const;
  void run_step(const Step& step, const Run& run, std::int64_t begin, std::int64_t n) const;

  void find_numbers();
  void find_repeating();
  bool take_slot(std::size_t r);
  void release_operands(std::size_t r);
  Step step(std::size_t r, const std::vector<Place>& operands) const;
  std::vector<Place> operands_of_register(std::size_t r) const;
  bool place_once();
  bool place_each();
  bool join_pair(std::size_t p, std::size_t r);

  std::int64_t most_;  // elements of a tile; a slot has room for them
  PointwiseExpression expression_;
  TensorType out_;
  std::vector<BroadcastWalk> walks_;  // per input
  std::vector<DType> dtypes_;         // per input
  std::int64_t tile_;
  std::int64_t block_;                 // elements that have the repeating registers in common
  std::vector<bool> repeats_;          // per register: alike in all tiles of a block
  std::vector<std::size_t> last_use_;  // per register: the one that frees its slot
  std::vector<Place> places_;          // per register
  std::vector<float> numbers_;
  std::vector<int> free_;
  std::vector<int> fetched_;  // inputs that are read where they are
  std::vector<Step> once_, each_;
};

}  // namespace tandem::engine
