// The kernel of fp4_gemm.h: a thread block of 8 warps takes one tile after another. Copies of the
// next stages (cp.async, four or five stages of 128 columns) run while warps multiply; a stage has
// rows of W and of x, each 64 bytes of codes and 8 of scales. W is the left operand, 16 rows of an
// instruction, x the right one, 8 tokens. Of W a lane reads codes as the device stores them and
// makes nibbles of them (e2m1_nibbles); rows of x have nibbles in that order already. Sums stay in
// registers over all of K, so a row's bits do not depend on the tile. Bound: 2 T N K FLOPs at the
// FP4 rate for many rows, the bytes of W for few. Never timed on a card that has the instruction.
#pragma once

#include "backend/cuda/ops/fp4/fp4_select.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/cluster.cuh"
#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/ptx/fp4_mma.cuh"
#include "backend/cuda/ptx/mma.cuh"
#include "backend/cuda/weights/code_words.h"

namespace nibble::cuda {

struct Fp4Args {
  Fp4Gemm gemm;
  int32_t k_steps;
  int32_t row_tiles;
  int32_t parts;  // token tiles of an entry of the list; without a list, all token tiles
};

template <typename Mma, Fp4Output kOutput, int kTokens>
class Fp4Tile {
 public:
  static constexpr bool kPaired = kOutput == Fp4Output::swiglu;
  static constexpr int kStages = fp4_stages(kTokens);
  static constexpr int kTokenWarps = kTokens == kFp4ManyTokens ? 2 : 1;
  static constexpr int kRowWarps = kFp4Threads / 32 / kTokenWarps;
  static constexpr int kM = kFp4TileRows / kFp4Rows / kRowWarps;  // left operands of a warp
  static constexpr int kN = kTokens / kFp4Columns / kTokenWarps;  // right operands of a warp
  static constexpr int kSteps = kFp4StepColumns / kFp4Depth;      // instructions along a stage
  static_assert(kM <= kFp4LeftThreads && kN % kFp4RightThreads == 0 && kSteps == 2);

  __device__ Fp4Tile(const Fp4Args& args, uint8_t* shared)
      : args_(args),
        gemm_(args.gemm),
        shared_(shared),
        lane_(static_cast<int>(threadIdx.x) & 31),
        warp_(static_cast<int>(threadIdx.x) >> 5) {}

  __device__ void run() {
    const int entries = gemm_.experts.present() ? *gemm_.experts.count : 1;
    total_ = entries * args_.parts * args_.row_tiles;
    begin(load_, static_cast<int>(blockIdx.x));
    begin(use_, static_cast<int>(blockIdx.x));
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) load_next();
#pragma unroll 1
    while (use_.index < total_) step();
    copy_async_wait_all();
  }

 private:
  struct Tile {
    int expert, begin, count, n0;
  };
  /// A Cursor is a step of a tile of this block.
  struct Cursor {
    int index = 0;
    int step = 0;
    Tile tile = {};
  };

  // ---- tiles ----

  __device__ Tile locate(int index) const {
    const int n0 = index % args_.row_tiles * fp4_tile_rows(kOutput);
    const int rest = index / args_.row_tiles;
    const int offset = rest % args_.parts * kTokens;
    if (!gemm_.experts.present()) return {0, offset, min(kTokens, gemm_.rows - offset), n0};
    const int32_t* entry = gemm_.experts.list + rest / args_.parts * gemm_.experts.stride;
    return {entry[0], entry[1] + offset, min(kTokens, entry[2] - offset), n0};
  }
  /// Goes to the first tile from `index` on that has rows.
  __device__ void begin(Cursor& cursor, int index) const {
    cursor.step = 0;
    for (cursor.index = index; cursor.index < total_; cursor.index += static_cast<int>(gridDim.x)) {
      cursor.tile = locate(cursor.index);
      if (cursor.tile.count > 0) return;
    }
  }
  __device__ void advance(Cursor& cursor) const {
    if (++cursor.step == args_.k_steps) begin(cursor, cursor.index + static_cast<int>(gridDim.x));
  }
  /// Return the row of x and of y of a token of a tile.
  __device__ int64_t row_of_x(const Tile& tile, int token) const {
    const int row = tile.begin + token;
    return (gemm_.experts.gather != nullptr ? gemm_.experts.gather[row] : row) /
           gemm_.experts.share;
  }
  __device__ int64_t row_of_y(int token) const {
    const int row = use_.tile.begin + token;
    return gemm_.experts.scatter != nullptr ? gemm_.experts.scatter[row] : row;
  }

  // ---- a stage: codes of W and x, then scales of W and x ----

  static constexpr int kRowCodes = kFp4StepColumns / 2;    // bytes of a row in a stage
  static constexpr int kRowScales = kFp4StepColumns / 16;  // likewise
  static constexpr int kChunks = kRowCodes / 16;
  static constexpr int kTokenCodes = kFp4TileRows * kRowCodes;
  static constexpr int kLeftScales = kTokenCodes + kTokens * kRowCodes;
  static constexpr int kRightScales = kLeftScales + kFp4TileRows * kRowScales;
  static constexpr int kBytes = fp4_stage_bytes(kTokens);
  static_assert(kRightScales + kTokens * kRowScales == kBytes);

  /// Returns the byte of chunk `chunk` of row `row`: eight rows that a matrix load reads together
  /// lie in different banks.
  __device__ static int place(int row, int chunk) {
    return row * kRowCodes + ((chunk ^ (row >> 1 & 3)) << 4);
  }

  // ---- copies: a thread copies the same places of every stage ----

  static constexpr int kPassRows = kFp4Threads / kChunks;
  static constexpr int kLeftPasses = kFp4TileRows / kPassRows;
  static constexpr int kRightPasses = (kTokens + kPassRows - 1) / kPassRows;
  static_assert(kPassRows == fp4_tile_rows(Fp4Output::swiglu) && kTokens <= kFp4Threads / 2);

  /// Returns the row of its matrix, within the tile, that goes to line `line` of a stage. Paired,
  /// lines 0..63 are gate and the rest up, in the order in which the result wants its columns.
  __device__ int matrix_row(int line) const {
    if constexpr (!kPaired) return line;
    const int at = line % kPassRows;
    return gemm_.order == ColumnOrder::packed ? packed_column(at) : x_column(at);
  }
  /// The inverse of x_place.
  __device__ static int x_column(int place) {
    return (place & ~7) | (place >> 1 & 3) | (place & 1) << 2;
  }

  __device__ void load_next() {
    if (load_.index < total_) {
      if (load_.step == 0) find_sources();
      const uint32_t stage = shared_address(shared_) + load_slot_ * kBytes;
      const int thread = static_cast<int>(threadIdx.x);
      const int line = thread / kChunks;
      const int chunk = thread % kChunks;
#pragma unroll
      for (int i = 0; i < kLeftPasses; ++i) {
        if (left_[i] != nullptr)
          copy_async_16(stage + place(line + i * kPassRows, chunk),
                        left_[i] + load_.step * kRowCodes, 16);
      }
#pragma unroll
      for (int i = 0; i < kRightPasses; ++i) {
        if (right_[i] != nullptr)
          copy_async_16(stage + kTokenCodes + place(line + i * kPassRows, chunk),
                        right_[i] + load_.step * kRowCodes, 16);
      }
      // The first half of the threads copies scales of W, the second those of x.
      const bool second = thread >= kFp4TileRows;
      const uint32_t to = stage + (second ? kRightScales : kLeftScales) +
                          static_cast<uint32_t>(thread % kFp4TileRows * kRowScales);
      if (scales_ != nullptr) copy_async_8(to, scales_ + load_.step * kRowScales);
      advance(load_);
    }
    if (++load_slot_ == kStages) load_slot_ = 0;
    copy_async_commit();
  }

  /// Finds what this thread copies of the tile; null: a row that is not there, whose place keeps
  /// what it had. Only rows of y that are not there either depend on it.
  __device__ void find_sources() {
    const Tile& tile = load_.tile;
    const int thread = static_cast<int>(threadIdx.x);
    const int line = thread / kChunks;
    const int chunk = thread % kChunks;
    const int64_t codes = gemm_.weight.cols / 2;
    const int64_t scales = gemm_.weight.cols / kFp4Group;
    const int64_t first = int64_t{tile.expert} * gemm_.weight.rows;
#pragma unroll
    for (int i = 0; i < kLeftPasses; ++i) {
      const int n = tile.n0 + matrix_row(line + i * kPassRows);
      const uint8_t* values = kPaired && i == 1 ? gemm_.up.values : gemm_.weight.values;
      left_[i] = n < gemm_.weight.rows ? values + (first + n) * codes + chunk * 16 : nullptr;
    }
#pragma unroll
    for (int i = 0; i < kRightPasses; ++i) {
      const int token = line + i * kPassRows;
      right_[i] =
          token < tile.count ? gemm_.x.codes + row_of_x(tile, token) * codes + chunk * 16 : nullptr;
    }
    scales_ = nullptr;
    if (thread < kFp4TileRows) {
      const int n = tile.n0 + matrix_row(thread);
      const uint8_t* from = kPaired && thread >= kPassRows ? gemm_.up.scales : gemm_.weight.scales;
      if (n < gemm_.weight.rows) scales_ = from + (first + n) * scales;
    } else if (thread - kFp4TileRows < tile.count) {
      scales_ = gemm_.x.scales + row_of_x(tile, thread - kFp4TileRows) * scales;
    }
  }

  // ---- products ----

  __device__ void step() {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    load_next();
    if (use_.step == 0) {
#pragma unroll
      for (int i = 0; i < kM * kN * 4; ++i) sum_[i / (kN * 4)][i / 4 % kN][i % 4] = 0.0F;
    }
    if (first_token() < use_.tile.count) multiply(use_slot_ * kBytes);
    if (++use_slot_ == kStages) use_slot_ = 0;
    if (use_.step + 1 == args_.k_steps) finish();
    advance(use_);
  }

  __device__ int first_token() const { return warp_ % kTokenWarps * kN * kFp4Columns; }
  /// Returns a slot of 16 rows: rows r and r + 8 of an operand are two adjacent groups of eight
  /// lines or, paired, the same eight columns of the result of gate and up.
  __device__ int slot_of(int m) const { return warp_ / kTokenWarps * kM + m; }
  __device__ static int line_of(int slot, int half, int r) {
    return kPaired ? half * kPassRows + slot * 8 + r : slot * 16 + half * 8 + r;
  }
  __device__ uint2 scales_at(int byte) const {
    return *reinterpret_cast<const uint2*>(shared_ + byte);
  }

  __device__ void multiply(int stage) {
    const int g = lane_ >> 2;
    const int t = lane_ & 3;
    // A lane has the scales of the operands that name it (fp4_fragments.h): of W those of operand
    // t / 2, row g + 8 (t % 2); of x those of every fourth operand, from t on, column g.
    const uint2 left = scales_at(stage + kLeftScales +
                                 line_of(slot_of(kM == 1 ? 0 : t >> 1), t & 1, g) * kRowScales);
    uint2 right[kN / kFp4RightThreads];
#pragma unroll
    for (int j = 0; j < kN / kFp4RightThreads; ++j)
      right[j] =
          scales_at(stage + kRightScales +
                    (first_token() + (kFp4RightThreads * j + t) * kFp4Columns + g) * kRowScales);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t a[kM][4];
      uint32_t b[kN][2];
      load_left(stage, s, a);
      load_right(stage, s, b);
      uint32_t right_scales[kN / kFp4RightThreads];
#pragma unroll
      for (int j = 0; j < kN / kFp4RightThreads; ++j)
        right_scales[j] = s == 0 ? right[j].x : right[j].y;
      products<0>(a, b, s == 0 ? left.x : left.y, right_scales);
    }
  }

  __device__ void load_left(int stage, int s, uint32_t (&a)[kM][4]) const {
    const uint32_t codes = shared_address(shared_) + stage;
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      load_matrix_4(a[m], codes + place(line_of(slot_of(m), lane_ >> 3 & 1, lane_ & 7),
                                        2 * s + (lane_ >> 4)));
#pragma unroll
      for (uint32_t& word : a[m]) word = e2m1_nibbles(word);
    }
  }
  __device__ void load_right(int stage, int s, uint32_t (&b)[kN][2]) const {
    const uint32_t codes = shared_address(shared_) + stage + kTokenCodes;
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      const int row = first_token() + n * kFp4Columns + (lane_ & 7) + (lane_ >> 4 << 3);
      uint32_t words[4];
      load_matrix_4(words, codes + place(row, 2 * s + (lane_ >> 3 & 1)));
      b[n][0] = words[0];
      b[n][1] = words[1];
      b[n + 1][0] = words[2];
      b[n + 1][1] = words[3];
    }
  }

  /// The instructions of one step, those of operand n % 4 of x under the scales of lanes n % 4.
  template <int kIndex>
  __device__ __forceinline__ void products(const uint32_t (&a)[kM][4], const uint32_t (&b)[kN][2],
                                           uint32_t left,
                                           const uint32_t (&right)[kN / kFp4RightThreads]) {
    if constexpr (kIndex < kM * kN) {
      constexpr int kLeft = kIndex % kM;
      constexpr int kRight = kIndex / kM;
      if (first_token() + kRight * kFp4Columns < use_.tile.count)
        Mma::template multiply<kLeft, kRight % kFp4RightThreads>(sum_[kLeft][kRight], a[kLeft],
                                                                 b[kRight][0], b[kRight][1], left,
                                                                 right[kRight / kFp4RightThreads]);
      products<kIndex + 1>(a, b, left, right);
    }
  }

  // ---- results ----

  __device__ float factor(const DeviceLinear& w) const {
    return w.factors[use_.tile.expert * w.factor_stride];
  }
  __device__ void finish() {
    scale_sums();
    if constexpr (kPaired)
      store_paired();
    else if constexpr (kOutput == Fp4Output::bf16)
      store_bf16();
    else
      store_f32();
  }
  /// Multiplies sums by the factors of their matrix and of their row of x.
  __device__ void scale_sums() {
    const float low = factor(gemm_.weight);
    const float high = kPaired ? factor(gemm_.up) : low;
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int token = first_token() + n * kFp4Columns + (lane_ & 3) * 2 + e;
        const bool scaled = gemm_.x.factors != nullptr && token < use_.tile.count;
        const float row = scaled ? gemm_.x.factors[row_of_x(use_.tile, token)] : 1.0F;
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          sum_[m][n][e] = sum_[m][n][e] * low * row;
          sum_[m][n][2 + e] = sum_[m][n][2 + e] * high * row;
        }
      }
  }

  __device__ void store_f32() const {
    auto* y = static_cast<float*>(gemm_.y);
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int token = first_token() + n * kFp4Columns + (lane_ & 3) * 2 + e;
        if (token >= use_.tile.count) continue;
        float* row = y + row_of_y(token) * gemm_.y_stride;
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int feature = use_.tile.n0 + line_of(slot_of(m), half, lane_ >> 2);
            if (feature >= gemm_.weight.rows) continue;
            const float sum = sum_[m][n][half * 2 + e];
            row[feature] = kOutput == Fp4Output::add ? row[feature] + sum : sum;
          }
      }
  }

  /// Eight columns of the result of eight tokens come as a fragment [column, token], which is
  /// transposed, so that a lane writes two columns of one row.
  __device__ void store_bf16() const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          store_pair(n, use_.tile.n0 + line_of(slot_of(m), half, 0),
                     to_bf16_pair(sum_[m][n][2 * half], sum_[m][n][2 * half + 1]));
  }
  __device__ void store_paired() const {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float* d = sum_[m][n];
        store_pair(n, use_.tile.n0 + slot_of(m) * 8,
                   to_bf16_pair(silu(d[0]) * d[2], silu(d[1]) * d[3]));
      }
  }
  __device__ void store_pair(int n, int first, uint32_t pair) const {
    const uint32_t turned = move_matrix_transposed(pair);
    const int token = first_token() + n * kFp4Columns + (lane_ >> 2);
    const int feature = first + (lane_ & 3) * 2;
    if (token >= use_.tile.count || feature >= gemm_.weight.rows) return;
    uint16_t* y = static_cast<uint16_t*>(gemm_.y) + row_of_y(token) * gemm_.y_stride + feature;
    if (feature + 1 < gemm_.weight.rows && (gemm_.y_stride & 1) == 0) {
      *reinterpret_cast<uint32_t*>(y) = turned;
    } else {
      y[0] = static_cast<uint16_t>(turned);
      if (feature + 1 < gemm_.weight.rows) y[1] = static_cast<uint16_t>(turned >> 16);
    }
  }

  const Fp4Args& args_;
  const Fp4Gemm& gemm_;
  uint8_t* shared_;
  int lane_;
  int warp_;
  int total_ = 0;
  Cursor load_, use_;
  int load_slot_ = 0;
  int use_slot_ = 0;
  const uint8_t* left_[kLeftPasses];
  const uint8_t* right_[kRightPasses];
  const uint8_t* scales_ = nullptr;
  float sum_[kM][kN][4];
};

/// Code for cards with the instruction has no kernels that emulate it, and the reverse.
template <typename Mma, Fp4Output kOutput, int kTokens>
__global__ __launch_bounds__(kFp4Threads, fp4_blocks_each(kTokens)) void fp4_kernel(
    const __grid_constant__ Fp4Args args) {
#if defined(NIBBLE_HAS_FP4_MMA)
  constexpr bool kHere = Mma::kMachine;
#else
  constexpr bool kHere = !Mma::kMachine;
#endif
  if constexpr (kHere) {
    extern __shared__ __align__(128) uint8_t shared[];
    Fp4Tile<Mma, kOutput, kTokens> tile(args, shared);
    tile.run();
  }
}

}  // namespace nibble::cuda
