#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <tandem/ops/cpu/walk.h>
#include <tandem/ops/pointwise_expression.h>

namespace tandem::engine {

/// A pointwise expression in f32, prepared for evaluation tile by tile in the first-level cache. Every
/// register has a place. Registers that repeat from tile to tile (parameters of channels) are computed once.
/// An f32 input or output that is contiguous like the tile is used in place. All other registers share slots
/// of scratch memory.
class TiledExpression {
 public:
  /// The expression's value has type `output` and is rounded to its dtype. Returns nothing if an input's
  /// broadcasting takes too many loops, or the expression needs too many registers.
  static std::optional<TiledExpression> make(const PointwiseExpression& expression, TypesView inputs,
                                             const TensorType& output);

  std::int64_t elements() const { return out_.elements(); }
  /// Returns the elements per tile. Ranges are fastest if they begin at multiples of it, or where a repeating
  /// input starts over.
  std::int64_t tile() const { return tile_; }

  /// Writes elements begin … end−1 of the value to the array `out`. `in` has the address of each input.
  void store(const void* const* in, void* out, std::int64_t begin, std::int64_t end) const;

  /// Calls `visitor(first, n, values)` for each tile of elements begin … end−1; `values` are n elements from
  /// `first` on. They are f32, not rounded to the output's dtype unless the expression ends with a cast.
  template <class F>
  void visit(const void* const* in, std::int64_t begin, std::int64_t end, const F& visitor) const {
    show(in, begin, end, std::cref(visitor));  // a reference: nothing is allocated
  }

 private:
  // The place of a register's tile.
  struct Place {
    enum Kind : std::uint8_t { none, slot, input, output, number } kind = none;
    int index = 0;
  };
  struct Step {
    PointwiseTerm instruction;
    std::array<Place, 3> from;
    Place to;
    // If not `input`: a second term that reads the value of the first, as its second operand if
    // `comes_second`.
    PointwiseCode then = PointwiseCode::input;
    bool comes_second = false;
  };
  struct Run;  // addresses that one thread uses during an evaluation
  using Visitor = std::function<void(std::int64_t begin, std::int64_t n, const float* values)>;

  TiledExpression(const PointwiseExpression& expression, TypesView inputs, const TensorType& output,
                  std::int64_t most);
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

  std::int64_t most_;  // most elements of a tile: the size of a slot
  PointwiseExpression expression_;
  TensorType out_;
  std::vector<BroadcastWalk> walks_;  // per input
  std::vector<DType> dtypes_;         // per input
  std::int64_t tile_;
  std::int64_t block_;                 // elements that share the repeating registers
  std::vector<bool> repeats_;          // per register: equal in all tiles of a block
  std::vector<std::size_t> last_use_;  // per register: the register whose computation frees its slot
  std::vector<Place> places_;          // per register
  std::vector<float> numbers_;
  std::vector<int> free_;          // free slots
  std::vector<int> fetched_;       // inputs that are read in place
  std::vector<Step> once_, each_;  // run once per block, and for each tile
};

}  // namespace tandem::engine
