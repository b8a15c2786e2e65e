// The kernel of quantized_gemm.h: a thread block of 8 warps takes one tile after another. Copies of
// the next stages (cp.async, four or five stages of 64 bytes of codes) run while warps multiply; a
// stage has rows of W and of x and, in NVFP4, 8 bytes of scales of each. W is the left operand, 16
// rows of an instruction, x the right one, 8 tokens. Of W a lane reads codes as the device stores
// them and makes whole ones of them; rows of x have them in that order already. Sums stay in
// registers over all of K, so a row's bits do not depend on the tile. Bound: 2 T N K FLOPs at the
// rate of the instruction for many rows, the bytes of W for few. Never timed on a card of compute
// capability 12.
#pragma once

#include "backend/cuda/ops/quantized/quantized_formats.cuh"
#include "backend/cuda/ops/quantized/quantized_results.cuh"
#include "backend/cuda/ops/quantized/quantized_select.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/cluster.cuh"
#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/ptx/mma.cuh"

namespace nibble::cuda {

struct QuantizedArgs {
  QuantizedGemm gemm;
  int32_t k_steps;
  int32_t row_tiles;
  int32_t parts;  // token tiles of an entry of the list; without a list, all token tiles
};

template <typename Operands, QuantizedOutput kOutput, int kTokens>
class QuantizedTile {
 public:
  static constexpr Format kFormat = Operands::kFormat;
  static constexpr bool kFp8 = kFormat == Format::fp8;
  static constexpr bool kPaired = is_paired(kOutput);
  static constexpr bool kCodes = kOutput == QuantizedOutput::swiglu_codes;
  static constexpr int kStages = quantized_stages(kTokens);
  static constexpr int kTokenWarps = kTokens == kQuantizedManyTokens ? 2 : 1;
  static constexpr int kRowWarps = kQuantizedThreads / 32 / kTokenWarps;
  static constexpr int kM = kQuantizedTileRows / kFp4Rows / kRowWarps;  // left operands of a warp
  static constexpr int kN = kTokens / kFp4Columns / kTokenWarps;        // right operands of a warp
  static constexpr int kSteps = kQuantizedStepBytes / 32;  // instructions along a stage
  static_assert(kM <= kFp4LeftThreads && kN % kFp4RightThreads == 0 && kSteps == 2);

  __device__ QuantizedTile(const QuantizedArgs& args, uint8_t* shared)
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
    const int n0 = index % args_.row_tiles * quantized_tile_rows(kOutput);
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

  static constexpr int kRowCodes = kQuantizedStepBytes;              // bytes of a row in a stage
  static constexpr int kRowScales = quantized_step_scales(kFormat);  // likewise
  static constexpr int kChunks = kRowCodes / 16;
  static constexpr int kTokenCodes = kQuantizedTileRows * kRowCodes;
  static constexpr int kLeftScales = kTokenCodes + kTokens * kRowCodes;
  static constexpr int kRightScales = kLeftScales + kQuantizedTileRows * kRowScales;
  static constexpr int kBytes = quantized_stage_bytes(kFormat, kTokens);
  static_assert(kRightScales + kTokens * kRowScales == kBytes);

  /// Returns the byte of chunk `chunk` of row `row`: eight rows that a matrix load reads together
  /// lie in different banks.
  __device__ static int place(int row, int chunk) {
    return row * kRowCodes + ((chunk ^ (row >> 1 & 3)) << 4);
  }

  // ---- copies: a thread copies the same places of every stage ----

  static constexpr int kPassRows = kQuantizedThreads / kChunks;
  static constexpr int kLeftPasses = kQuantizedTileRows / kPassRows;
  static constexpr int kRightPasses = (kTokens + kPassRows - 1) / kPassRows;
  static_assert(kPassRows == quantized_tile_rows(QuantizedOutput::swiglu) &&
                kTokens <= kQuantizedThreads / 2);

  /// Returns the row of its matrix, within the tile, that goes to line `line` of a stage. Paired,
  /// lines 0..63 are gate and the rest up, in the order in which the result wants its columns.
  __device__ int matrix_row(int line) const {
    if constexpr (!kPaired) return line;
    const int at = line % kPassRows;
    return !kCodes && gemm_.order == ColumnOrder::packed ? packed_column(at) : x_column(at);
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
      const bool second = thread >= kQuantizedTileRows;
      const uint32_t to = stage + (second ? kRightScales : kLeftScales) +
                          static_cast<uint32_t>(thread % kQuantizedTileRows * kRowScales);
      if (!kFp8 && scales_ != nullptr) copy_async_8(to, scales_ + load_.step * kRowScales);
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
    const int64_t codes = int64_t{args_.k_steps} * kRowCodes;
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
    if (kFp8) return;
    if (thread < kQuantizedTileRows) {
      const int n = tile.n0 + matrix_row(thread);
      const uint8_t* from = kPaired && thread >= kPassRows ? gemm_.up.scales : gemm_.weight.scales;
      if (n < gemm_.weight.rows) scales_ = from + (first + n) * scales;
    } else if (thread - kQuantizedTileRows < tile.count) {
      scales_ = gemm_.x.scales + row_of_x(tile, thread - kQuantizedTileRows) * scales;
    }
  }

  // ---- products ----

  __device__ void step() {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    load_next();
    if (use_.step == 0) clear(sum_);
    if constexpr (kFp8) {
      if (use_.step % kPartSteps == 0) clear(part_);
    }
    if (first_token() < use_.tile.count) multiply(use_slot_ * kBytes);
    if constexpr (kFp8) {
      if (use_.step % kPartSteps == kPartSteps - 1) add_part(use_.step / kPartSteps);
    }
    if (++use_slot_ == kStages) use_slot_ = 0;
    if (use_.step + 1 == args_.k_steps) finish();
    advance(use_);
  }

  template <int kLeft>
  __device__ static void clear(float (&sums)[kLeft][kN][4]) {
#pragma unroll
    for (int i = 0; i < kLeft * kN * 4; ++i) sums[i / (kN * 4)][i / 4 % kN][i % 4] = 0.0F;
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
    uint2 left = {};
    uint2 right[kN / kFp4RightThreads] = {};
    if constexpr (!kFp8) {
      left = scales_at(stage + kLeftScales +
                       line_of(slot_of(kM == 1 ? 0 : t >> 1), t & 1, g) * kRowScales);
#pragma unroll
      for (int j = 0; j < kN / kFp4RightThreads; ++j)
        right[j] =
            scales_at(stage + kRightScales +
                      (first_token() + (kFp4RightThreads * j + t) * kFp4Columns + g) * kRowScales);
    }
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
      for (uint32_t& word : a[m]) word = Operands::whole(word);
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
        Operands::template multiply<kLeft, kRight % kFp4RightThreads>(
            kFp8 ? part_[kFp8 ? kLeft : 0][kRight] : sum_[kLeft][kRight], a[kLeft], b[kRight][0],
            b[kRight][1], left, right[kRight / kFp4RightThreads]);
      products<kIndex + 1>(a, b, left, right);
    }
  }

  // ---- results ----

  /// Returns the factor of the row of W at a line of the tile. Block scales are in the sums
  /// already.
  __device__ float factor(const DeviceLinear& w, int line) const {
    const float* factors = w.factors + use_.tile.expert * w.factor_stride;
    if (!kFp8 || w.layout == FactorLayout::scalar) return factors[0];
    if (w.layout == FactorLayout::block128) return 1.0F;
    return factors[min(use_.tile.n0 + matrix_row(line), w.rows - 1)];
  }
  __device__ bool in_blocks() const { return gemm_.weight.layout == FactorLayout::block128; }
  __device__ bool in_groups() const { return gemm_.x.factors_each > 1; }

  /// Adds the sums of 128 columns to those of all.
  __device__ void add_part(int part) {
    if (!in_blocks() && !in_groups()) {
#pragma unroll
      for (int i = 0; i < kM * kN * 4; ++i)
        sum_[i / (kN * 4)][i / 4 % kN][i % 4] += part_[i / (kN * 4)][i / 4 % kN][i % 4];
      return;
    }
    const auto of_block = [&](const DeviceLinear& w) {
      return in_blocks() ? block_factor(w, use_.tile.expert, use_.tile.n0, part) : 1.0F;
    };
    const float low = of_block(gemm_.weight);
    const float high = kPaired ? of_block(gemm_.up) : low;
#pragma unroll
    for (int i = 0; i < kN * 2; ++i) {
      const float row = in_groups() ? row_factor(i, part) : 1.0F;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        float* sums = sum_[m][i / 2] + i % 2;
        const float* parts = part_[m][i / 2] + i % 2;
        sums[0] += parts[0] * (low * row);
        sums[2] += parts[2] * (high * row);
      }
    }
  }
  /// Returns factor `part` of the row of x of token i % 2 of this lane in operand i / 2.
  __device__ float row_factor(int i, int part) const {
    const int token = first_token() + i / 2 * kFp4Columns + (lane_ & 3) * 2 + i % 2;
    const bool scaled = gemm_.x.factors != nullptr && token < use_.tile.count;
    return scaled ? gemm_.x.factors[row_of_x(use_.tile, token) * gemm_.x.factors_each + part]
                  : 1.0F;
  }

  __device__ void finish() {
    scale_sums();
    if constexpr (kCodes)
      store_codes();
    else if constexpr (kPaired)
      store_paired();
    else if constexpr (kOutput == QuantizedOutput::bf16)
      store_bf16();
    else
      store_f32();
  }
  /// Multiplies sums by the factors of their rows of W and of x.
  __device__ void scale_sums() {
    float of_w[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        of_w[m][half] = factor(kPaired && half == 1 ? gemm_.up : gemm_.weight,
                               line_of(slot_of(m), half, lane_ >> 2));
#pragma unroll
    for (int i = 0; i < kN * 2; ++i) {
      const float row = kFp8 && in_groups() ? 1.0F : row_factor(i, 0);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        float* sums = sum_[m][i / 2] + i % 2;
        sums[0] = sums[0] * of_w[m][0] * row;
        sums[2] = sums[2] * of_w[m][1] * row;
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
            row[feature] = kOutput == QuantizedOutput::add ? row[feature] + sum : sum;
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
      for (int n = 0; n < kN; ++n)
        store_pair(n, use_.tile.n0 + slot_of(m) * 8, swiglu_pair(sum_[m][n]));
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

  // ---- results as codes: 16 columns of 32 tokens meet in memory; a lane reads those of one ----

  static constexpr int kGroupWarps = 2 / kM;  // warps that have 16 columns
  static constexpr int kMetOperands = kMetTokens / kFp4Columns;

  /// Lines of a tile are in the order of x_place, so the words are the pairs of a ColumnGroup.
  __device__ void store_codes() const {
    auto* words = reinterpret_cast<uint32_t*>(shared_ + kStages * kBytes) +
                  warp_ / kGroupWarps * kMetTokens * kGroupWords;
    constexpr int kEach = kMetTokens / kGroupWarps;  // tokens of a warp
    const int own = warp_ % kGroupWarps * kEach + lane_;
#pragma unroll
    for (int first = 0; first < kN; first += kMetOperands) {
      meet_warps<kGroupWarps>();  // the last ones are read
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kMetOperands; ++n)
          words[(n * kFp4Columns + (lane_ >> 2)) * kGroupWords + slot_of(m) % 2 * 4 + (lane_ & 3)] =
              move_matrix_transposed(swiglu_pair(sum_[m][first + n]));
      meet_warps<kGroupWarps>();
      const int token = first_token() + first * kFp4Columns + own;
      if (lane_ < kEach && token < use_.tile.count)
        store_group(gemm_, use_.tile.expert, row_of_y(token),
                    use_.tile.n0 + slot_of(0) / 2 * kRowGroup, words + own * kGroupWords);
    }
  }

  const QuantizedArgs& args_;
  const QuantizedGemm& gemm_;
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
  static constexpr int kPartSteps =
      static_cast<int>(kFp8Block) / quantized_step_columns(Format::fp8);
  float part_[kFp8 ? kM : 1][kN][4];  // FP8: sums of the last columns
};

template <typename Operands, QuantizedOutput kOutput, int kTokens>
__global__
__launch_bounds__(kQuantizedThreads, quantized_blocks_each(kTokens)) void quantized_kernel(
    const __grid_constant__ QuantizedArgs args) {
  if constexpr (Operands::kHere) {
    extern __shared__ __align__(128) uint8_t shared[];
    QuantizedTile<Operands, kOutput, kTokens> tile(args, shared);
    tile.run();
  }
}

}  // namespace nibble::cuda
