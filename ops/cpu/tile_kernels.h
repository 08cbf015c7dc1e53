#pragma once
#include <cstdint>

#include <tandem/core/base/types.h>
#include <tandem/ops/cpu/walk.h>
#include <tandem/ops/pointwise_expression.h>

/// Kernels that compute, load, store and cast tiles of f32 for TiledExpression (tiled_expression.h).
namespace tandem::engine {

/// One operand of a tile. If `constant`, one number stands for all elements of the tile.
struct TileOperand {
  const float* data;
  bool constant;
};

/// Computes one term. `to` can be an operand: every element is read before it is written.
void compute_tile(PointwiseCode code, float* to, TileOperand a, TileOperand b, TileOperand c, std::int64_t n);

/// Computes two terms in one loop, for a first term that only the second reads: the value between them stays
/// in a processor register. Each term rounds as it does alone. to = second(first(a, b), c); if
/// `comes_second`, to = second(c, first(a, b)).
void compute_pair(PointwiseCode first, PointwiseCode second, bool comes_second, float* to, const float* a,
                  const float* b, const float* c, std::int64_t n);
/// Tell which terms can be the first, and the second, of a pair.
bool pairs_first(PointwiseCode code);
bool pairs_second(PointwiseCode code);

/// Loads elements begin … begin+n−1, in the order of the output, from an input of any dtype.
void load_tile(DType dtype, const BroadcastWalk& walk, const void* from, std::int64_t begin, std::int64_t n,
               float* to);
/// Stores a tile to elements begin … begin+n−1 of the array `to`.
void store_tile(DType dtype, const float* from, void* to, std::int64_t begin, std::int64_t n);
/// Rounds a tile to `dtype`. `to` can be `from`.
void cast_tile(DType dtype, const float* from, float* to, std::int64_t n);

}  // namespace tandem::engine
