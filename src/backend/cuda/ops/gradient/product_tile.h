// The cut of the rows of a product with a stack of matrices.
#pragma once

#include <cstdint>

namespace nibble::cuda {

/// Rows [begin, begin + count) of a product, all with matrix `index` of a stack.
struct ProductTile {
  int32_t index = 0;
  int32_t begin = 0;
  int32_t count = 0;  // at most kProductTileRows
};
inline constexpr int kProductTileRows = 64;

}  // namespace nibble::cuda
