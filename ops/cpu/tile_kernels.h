#pragma once
#include <cstdint>

#include <tandem/core/base/types.h>
#include <tandem/ops/cpu/walk.h>
#include <tandem/ops/pointwise_expression.h>

/// Instructions of expressions on tiles of f32 (tiled_expression.h), and what moves tiles.
namespace tandem::engine {

/// One number for all of a tile where `constant`.
struct TileOperand {
  const float* data;
  bool constant;
};

/// One instruction. `to` may be an operand: every element is read before it is written.
void compute_tile(PointwiseCode code, float* to, TileOperand a, TileOperand b, TileOperand c, std::int64_t n);

/// Two instructions in one loop, where the second alone reads the first: what is between them stays in a
/// register. Each rounds as it does alone. to = second(first(a, b), c), or second(c, first(a, b)) where that
/// comes second.
void compute_pair(PointwiseCode first, PointwiseCode second, bool comes_second, float* to, const float* a,
                  const float* b, const float* c, std::int64_t n);
/// Which instructions can be the first of a pair, and the second.
bool pairs_first(PointwiseCode code);
bool pairs_second(PointwiseCode code);

/// Elements begin … begin+n−1 of the output's order, from an input of any dtype.
void load_tile(DType dtype, const BroadcastWalk& walk, const void* from, std::int64_t begin, std::int64_t n,
               float* to);
/// To elements begin … begin+n−1 of the array `to`.
void store_tile(DType dtype, const float* from, void* to, std::int64_t begin, std::int64_t n);
/// Rounded to `dtype`. `to` may be `from`.
void cast_tile(DType dtype, const float* from, float* to, std::int64_t n);

}  // namespace tandem::engine
