// A block makes kTileRows x kTileCols numbers on tensor cores, a warp 32 x 32 of them, from panels
// of kDepth terms in shared memory; the next panel is on its way in registers meanwhile. Rows are
// F32 as the sum of two BF16 numbers, whose products with the BF16 matrix are added up in F32: 16
// bits of each number count. Any card from sm_80 up.
// Bound: FLOPs of the tensor cores, 4 R N K, twice those of one BF16 product.
#include "backend/cuda/ops/gradient/gradient_product.h"

#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/mma.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kTileRows = kProductTileRows;
constexpr int kTileCols = 128;
constexpr int kDepth = 32;
constexpr int kPairs = kDepth / 2;  // of terms, each in a word
constexpr int kLine = kPairs + 4;   // words; the eight rows of a fragment meet in no bank
constexpr int kParts = 2;

enum class Way : uint8_t { forward, backward };

/// The product without names: out [rows, n] = x [rows, k] B, B [k, n] read from the matrix.
struct Shape {
  int32_t n = 0;
  int32_t k = 0;
};

template <Way kWay>
__device__ Shape shape_of(const GradientProduct& p) {
  return kWay == Way::forward ? Shape{p.weight.rows, p.cols} : Shape{p.cols, p.weight.rows};
}

/// Panels of both sides: a line has the terms of one row of x, or of one column of B.
struct Panels {
  uint32_t x[kParts][kTileRows][kLine];
  uint32_t b[kTileCols][kLine];
};

template <Way kWay>
class ProductBlock {
 public:
  __device__ ProductBlock(const GradientProduct& p, const ProductTile& tile, int column,
                          Panels& panels)
      : p_(p), shape_(shape_of<kWay>(p)), tile_(tile), column_(column), panels_(panels) {
    matrix_ = reinterpret_cast<const uint16_t*>(p.weight.values) +
              int64_t{tile.index} * p.weight.rows * p.weight.cols;
    const int at = tile.begin + min(thread() / 4, tile.count - 1);
    x_row_ = p.x + int64_t{p.gather == nullptr ? at : p.gather[at]} * shape_.k;
  }

  __device__ void run() {
    load(0);
    for (int depth = 0; depth < shape_.k; depth += kDepth) {
      __syncthreads();
      keep();
      __syncthreads();
      if (depth + kDepth < shape_.k) load(depth + kDepth);
      multiply();
    }
  }

  template <ProductResult kResult>
  __device__ void store() const {
    const int row0 = warp() / 4 * 32 + lane() / 4;
    const int col0 = column_ + warp() % 4 * 32 + lane() % 4 * 2;
    for (int m = 0; m < 2; ++m)
      for (int n = 0; n < 4; ++n)
        for (int i = 0; i < 4; ++i) {
          const int row = row0 + 16 * m + i / 2 * 8, col = col0 + 8 * n + i % 2;
          if (row >= tile_.count || col >= shape_.n) continue;
          float& to = p_.out[int64_t{tile_.begin + row} * shape_.n + col];
          to = kResult == ProductResult::added ? to + sums_[m][n][i] : sums_[m][n][i];
        }
  }

 private:
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ int warp() { return thread() / kWarp; }
  static __device__ int lane() { return thread() % kWarp; }

  /// Eight terms of a row of x, and sixteen numbers of B; zeros beyond the ends.
  __device__ void load(int depth) {
    const int at = depth + thread() % 4 * 8;
    if (shape_.k % 4 == 0 && at + 8 <= shape_.k) {
      *reinterpret_cast<float4*>(x_) = *reinterpret_cast<const float4*>(x_row_ + at);
      *reinterpret_cast<float4*>(x_ + 4) = *reinterpret_cast<const float4*>(x_row_ + at + 4);
    } else {
      for (int i = 0; i < 8; ++i) x_[i] = at + i < shape_.k ? x_row_[at + i] : 0.0F;
    }
    if (kWay == Way::forward) {  // two stretches of one column: of a row of the matrix
      const int column = column_ + thread() / 2;
      const int term = depth + thread() % 2 * 16;
      const int count = column < shape_.n ? shape_.k - term : 0;
      load_eight(column, term, count, b_[0]);
      load_eight(column, term + 8, count - 8, b_[1]);
    } else {  // eight columns of two terms
      const int column = column_ + thread() / kPairs * 8;
      const int term = depth + thread() % kPairs * 2;
      load_eight(term, column, term < shape_.k ? shape_.n - column : 0, b_[0]);
      load_eight(term + 1, column, term + 1 < shape_.k ? shape_.n - column : 0, b_[1]);
    }
  }
  /// Rows of the matrix begin at multiples of 16 bytes, and `column` is a multiple of eight.
  __device__ void load_eight(int row, int column, int count, uint32_t (&to)[4]) {
    const uint16_t* from = matrix_ + int64_t{row} * p_.weight.cols + column;
    if (count >= 8) {
      const uint4 v = *reinterpret_cast<const uint4*>(from);
      to[0] = v.x;
      to[1] = v.y;
      to[2] = v.z;
      to[3] = v.w;
      return;
    }
    for (int i = 0; i < 4; ++i) {
      const uint32_t low = 2 * i < count ? from[2 * i] : 0U;
      const uint32_t high = 2 * i + 1 < count ? from[2 * i + 1] : 0U;
      to[i] = low | high << 16;
    }
  }

  __device__ void keep() {
    for (int i = 0; i < 4; ++i) {
      const float low = x_[2 * i], high = x_[2 * i + 1];
      const uint32_t pair = to_bf16_pair(low, high);
      const int at = thread() % 4 * 4 + i;
      panels_.x[0][thread() / 4][at] = pair;
      panels_.x[1][thread() / 4][at] = to_bf16_pair(low - low_bf16(pair), high - high_bf16(pair));
    }
    if (kWay == Way::forward) {
      for (int i = 0; i < 8; ++i)
        panels_.b[thread() / 2][thread() % 2 * 8 + i] = b_[i / 4][i % 4];
    } else {
      for (int i = 0; i < 8; ++i) {
        const int shift = i % 2 * 16;
        const uint32_t low = b_[0][i / 2] >> shift & 0xFFFFU;
        const uint32_t high = b_[1][i / 2] >> shift & 0xFFFFU;
        panels_.b[thread() / kPairs * 8 + i][thread() % kPairs] = low | high << 16;
      }
    }
  }

  /// 16 x 16 terms of rows from `row` on, as mma_bf16 takes them.
  __device__ void load_rows(int part, int row, int pair, uint32_t (&a)[4]) const {
    const int r = row + lane() / 4, p = pair + lane() % 4;
    a[0] = panels_.x[part][r][p];
    a[1] = panels_.x[part][r + 8][p];
    a[2] = panels_.x[part][r][p + 4];
    a[3] = panels_.x[part][r + 8][p + 4];
  }

  __device__ void multiply() {
    const int row = warp() / 4 * 32, col = warp() % 4 * 32 + lane() / 4;
#pragma unroll
    for (int pair = 0; pair < kPairs; pair += 8) {
      uint32_t b[4][2];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        b[n][0] = panels_.b[col + 8 * n][pair + lane() % 4];
        b[n][1] = panels_.b[col + 8 * n][pair + lane() % 4 + 4];
      }
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          uint32_t a[4];
          load_rows(part, row + 16 * m, pair, a);
#pragma unroll
          for (int n = 0; n < 4; ++n) mma_bf16(sums_[m][n], a, b[n][0], b[n][1]);
        }
    }
  }

  const GradientProduct& p_;
  Shape shape_;
  ProductTile tile_;
  int column_;
  Panels& panels_;
  const uint16_t* matrix_;
  const float* x_row_;
  __align__(16) float x_[8];
  uint32_t b_[2][4];
  float sums_[2][4][4] = {};
};

/// A block has tile blockIdx.y and columns from blockIdx.x * kTileCols.
template <Way kWay, ProductResult kResult>
__global__ __launch_bounds__(kThreads) void product_kernel(const GradientProduct p) {
  __shared__ __align__(16) Panels panels;
  const int index = static_cast<int>(blockIdx.y);
  const int begin = index * kTileRows;
  const ProductTile tile =
      p.tiles != nullptr ? p.tiles[index] : ProductTile{0, begin, min(kTileRows, p.rows - begin)};
  ProductBlock<kWay> block(p, tile, static_cast<int>(blockIdx.x) * kTileCols, panels);
  block.run();
  block.template store<kResult>();
}

template <Way kWay, ProductResult kResult>
cudaError_t launch_product(const GradientProduct& p, cudaStream_t stream) {
  if (p.rows == 0) return cudaSuccess;
  if (p.weight.format != Format::bf16) return cudaErrorInvalidValue;
  const int n = kWay == Way::forward ? p.weight.rows : p.cols;
  const int tiles = p.tiles != nullptr ? p.tile_count : (p.rows + kTileRows - 1) / kTileRows;
  const dim3 grid(static_cast<unsigned>((n + kTileCols - 1) / kTileCols),
                  static_cast<unsigned>(tiles));
  product_kernel<kWay, kResult><<<grid, kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t gradient_forward(const GradientProduct& product, cudaStream_t stream) {
  return launch_product<Way::forward, ProductResult::stored>(product, stream);
}

cudaError_t gradient_backward(const GradientProduct& product, ProductResult result,
                              cudaStream_t stream) {
  return result == ProductResult::added
             ? launch_product<Way::backward, ProductResult::added>(product, stream)
             : launch_product<Way::backward, ProductResult::stored>(product, stream);
}

}  // namespace nibble::cuda
