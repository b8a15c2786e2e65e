// One block of linear_stream.cu. A cluster of two or four blocks multiplies tiles of 64 rows of W
// with 8 kN8 tokens, each block a share of the columns that the shape alone decides. In a block,
//   two warps ask for the weights, into a ring of stages, without waiting for inputs;
//   two warpgroups widen them into operands and multiply, each a half of every stage;
//   two warps finish: the sums of all warpgroups of the cluster meet in the shared memory of the
//   block that finishes those rows, are added in one order and stored.
// The inputs lie in shared memory for all tiles, in the order linear_stream_parts.cuh says.
#pragma once

#include "backend/cuda/convolve_output.cuh"
#include "backend/cuda/linear_stream_parts.cuh"

namespace nibble::cuda {

struct StreamPlan {
  DeviceLinear weight;
  float* y = nullptr;
  int64_t y_stride = 0;
  int32_t rows = 0;
  int32_t tiles = 0;
  int32_t clusters = 0;
  int32_t slices = 0;     // of 256 columns
  int32_t rank_bits = 1;  // log2 of the blocks of a cluster: 1 or 2
  int32_t stages = 0;     // of the ring
  int32_t x_bytes = 0;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* gather = nullptr;
};

inline constexpr int kStreamMultipliers = kStreamGroups * 4;  // warps
inline constexpr int kStreamProducers = 2;                    // warps
inline constexpr int kStreamStagesMax = 8;
inline constexpr int kStreamRanksMax = 4;
inline constexpr int kStreamFinishers = 2;  // warps
inline constexpr int kLinearThreads =
    (kStreamMultipliers + kStreamFinishers + kStreamProducers) * 32;
/// Sums of the rows a block finishes: of each warpgroup of the cluster, whatever its size.
constexpr int stream_sum_bytes(int n8) { return n8 * 4096; }

struct StreamBarriers {
  uint64_t full[kStreamStagesMax];
  uint64_t empty[kStreamStagesMax];
  uint64_t sums_full, sums_empty;
};

#ifdef NIBBLE_HAS_WGMMA

template <Format kFormat, bool kBlocks, int kN8>
class StreamBody {
 public:
  __device__ __forceinline__ StreamBody(const StreamPlan& plan, int cluster, uint8_t* memory,
                                        StreamBarriers& barriers)
      : plan_(plan),
        cluster_(cluster),
        rank_(rank_in_cluster()),
        barriers_(barriers),
        x_(memory),
        sums_(memory + plan.x_bytes),
        ring_(memory + plan.x_bytes + stream_sum_bytes(kN8)) {
    slice_begin_ = rank_ * plan.slices >> plan.rank_bits;
    slices_ = ((rank_ + 1) * plan.slices >> plan.rank_bits) - slice_begin_;
    steps_ = (slices_ * kSliceColumns + kColumns - 1) / kColumns;
  }

  __device__ __forceinline__ void run(int warp) {
    if (warp >= kStreamMultipliers + kStreamFinishers) {
      produce();
    } else if (warp < kStreamMultipliers) {
      wait_for_cluster();
      multiply_all(warp);
    } else {
      wait_for_cluster();
      finish_all();
    }
  }

 private:
  static constexpr int kColumns = stage_columns(kFormat);
  static constexpr int kStageBytes = stage_bytes(kFormat);
  static constexpr bool kHasScales = kFormat == Format::nvfp4;
  static constexpr int kTokens = 8 * kN8;
  static constexpr int kLineBytes = kTokens * 128;

  __device__ __forceinline__ void advance() {
    if (++slot_ == plan_.stages) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

  // ---- the warps that ask for weights ----

  /// The first stages are asked for before the blocks of the cluster have met.
  __device__ __forceinline__ void produce() {
    int asked = 0;
#pragma unroll 1
    for (int row_begin = 0; row_begin < plan_.rows; row_begin += kTokens)
#pragma unroll 1
      for (int tile = cluster_; tile < plan_.tiles; tile += plan_.clusters)
#pragma unroll 1
        for (int step = 0; step < steps_; ++step) {
          if (asked++ == plan_.stages) wait_for_cluster();
          ask(tile * kStreamRowTile, step);
          advance();
        }
    if (asked <= plan_.stages) wait_for_cluster();
  }
  /// Each warp asks for its share of the rows, a row by 16 lanes.
  __device__ __forceinline__ void ask(int row, int step) const {
    const DeviceLinear& w = plan_.weight;
    constexpr int kRows = kStreamRowTile / kStreamProducers;
    constexpr int kLanes = kStreamRowBytes / 16;  // of a row
    const int lane = threadIdx.x % 32;
    const int first_row =
        (static_cast<int>(threadIdx.x / 32) - kStreamMultipliers - kStreamFinishers) * kRows;
    const int columns = min(kColumns, slices_ * kSliceColumns - step * kColumns);
    const int64_t first = slice_begin_ * kSliceColumns + step * kColumns;
    const uint32_t full = shared_address(&barriers_.full[slot_]);
    const uint32_t to = shared_address(ring_ + slot_ * kStageBytes);
    barrier_wait(shared_address(&barriers_.empty[slot_]), parity_ ^ 1);
    if (lane % kLanes * 16 < value_bytes(kFormat, columns)) {
      const uint8_t* from = w.values + value_bytes(kFormat, first) + lane % kLanes * 16;
      const int64_t row_bytes = value_bytes(kFormat, w.cols);
#pragma unroll
      for (int i = 0; i < kRows; i += 32 / kLanes) {
        const int r = first_row + i + lane / kLanes;
        copy_weights_16(to + r * kStreamPitch + lane % kLanes * 16,
                        from + min(row + r, w.rows - 1) * row_bytes);
      }
    }
    if constexpr (kHasScales) {
      if (lane % 2 * 256 < columns) {
#pragma unroll
        for (int i = 0; i < kRows; i += 16) {
          const int r = first_row + i + lane / 2;
          copy_weights_16(
              to + kStreamRowTile * kStreamPitch + r * kStreamScalePitch + lane % 2 * 16,
              w.scales + min(row + r, w.rows - 1) * (int64_t{w.cols} / 16) + first / 16 +
                  lane % 2 * 16);
        }
      }
    }
    arrive_copied(full);
  }
  // ---- the warps that multiply ----

  __device__ __forceinline__ void multiply_all(int warp) {
    int tiles_done = 0;
    wait_for_inputs();
#pragma unroll 1
    for (int row_begin = 0; row_begin < plan_.rows; row_begin += kTokens) {
      if (row_begin > 0) sync_multipliers();
      take_inputs(warp, row_begin);
      fence_async_proxy();
      sync_multipliers();
#pragma unroll 1
      for (int tile = cluster_; tile < plan_.tiles; tile += plan_.clusters) {
        Sums sums;
        multiply_tile(tile, warp, sums);
        send(warp, tiles_done++, sums);
      }
    }
  }

  /// A warp takes 8 tokens x 64 columns at a time, four lanes a token.
  __device__ __forceinline__ void take_inputs(int warp, int row_begin) const {
    const int g = static_cast<int>(threadIdx.x % 32) / 4;
    const int t = threadIdx.x % 4;
    const int eight = warp % kN8;
    const int token = min(row_begin + 8 * eight + g, plan_.rows - 1);
    const uint16_t* x = plan_.x +
                        (plan_.gather == nullptr ? token : plan_.gather[token]) * plan_.x_stride +
                        slice_begin_ * kSliceColumns;
    uint8_t* to = x_ + eight * 1024 + g * 128 + 4 * t;
    const int lines = slices_ * (kSliceColumns / 64);
#pragma unroll 4
    for (int line = warp / kN8; line < lines; line += kStreamMultipliers / kN8)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const uint4 words = pair_inputs<kFormat>(
            *reinterpret_cast<const uint4*>(x + line_column<kFormat>(line, t, e)));
#pragma unroll
        for (int m = 0; m < 4; ++m)
          *reinterpret_cast<uint32_t*>(to + line * kLineBytes + (((4 * e + m) ^ g) << 4)) =
              word_of(words, m);
      }
  }

  // A half of a stage is 128 bytes of a row, taken as two times 64, or (nvfp4) 64 at a time: what
  // a wgmma reads must stay in registers, and the widened codes of 128 bytes do not fit.
  static constexpr int kTurns = kHasScales ? 2 : 1;
  static constexpr int kPieces = 2 / kTurns;  // of 64 bytes, in a turn
  using Operand = Fragments<kFormat>;
  static constexpr int kTurnSteps = kPieces * Operand::kParts * Operand::kSteps;  // of 16 columns

  /// 16 bytes of each piece, of both rows of this lane.
  struct Raw {
    uint4 rows[kPieces][2];
    uint32_t scales[kPieces][2];
  };
  __device__ __forceinline__ void take_weights(int half, int turn, Raw& raw) const {
    const int lane = threadIdx.x % 32;
    const int row = static_cast<int>(threadIdx.x / 32 % 4) * 16 + stream_row(lane / 4);
    const uint8_t* stage = ring_ + slot_ * kStageBytes;
    const uint8_t* at =
        stage + row * kStreamPitch + kStreamRowBytes / kStreamGroups * half + 16 * (lane % 4);
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const int piece = turn * kPieces + i;
        raw.rows[i][high] =
            *reinterpret_cast<const uint4*>(at + 8 * high * kStreamPitch + 64 * piece);
        if constexpr (kHasScales)
          raw.scales[i][high] = *reinterpret_cast<const uint16_t*>(
              stage + kStreamRowTile * kStreamPitch + (row + 8 * high) * kStreamScalePitch +
              16 * half + 8 * piece + 2 * (lane % 4));
      }
  }
  /// Two chains of sums, of even and of odd steps: one product waits for the one before.
  struct Sums {
    float of[2][4 * kN8];
    __device__ __forceinline__ void clear() {
#pragma unroll
      for (int i = 0; i < 4 * kN8; ++i) of[0][i] = of[1][i] = 0.0F;
    }
    __device__ __forceinline__ float total(int i) const { return of[0][i] + of[1][i]; }
  };

  __device__ __forceinline__ void multiply_tile(int tile, int warp, Sums& sums) {
    const int half = warp / 4;
    const float* factors = nullptr;
    if constexpr (kBlocks) factors = block_factors(tile, half);
    const uint64_t x = wgmma_descriptor(shared_address(x_));
    Sums part;
    part.clear();
    sums.clear();
#pragma unroll 1
    for (int step = 0; step < steps_; ++step) {
      const int half_stage = step * kStreamGroups + half;
      const float factor = kBlocks ? factors[2 * step] : 1.0F;
      // Half a stage of NVFP4 is a slice; the last may be beyond this block's.
      const bool works = !kHasScales || half_stage < slices_;
#pragma unroll 1
      for (int turn = 0; turn < kTurns; ++turn) {
        // Before anything is loaded, and with a branch between: the compiler takes registers that
        // products still read for what comes after them.
        wgmma_wait<0>();
        barrier_wait(shared_address(&barriers_.full[slot_]), parity_);
        Raw raw;
        take_weights(half, turn, raw);
        if (turn + 1 == kTurns) {
          __syncwarp();
          if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&barriers_.empty[slot_]));
        }
        if (works) multiply_turn(raw, x, half_stage * kTurns + turn, kBlocks ? part : sums);
      }
      advance();
      if constexpr (kBlocks) {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 4 * kN8; ++i)
          sums.of[0][i] = fmaf(factor, part.total(i), sums.of[0][i]);
        part.clear();
      }
    }
    wgmma_wait<0>();
  }
  /// Turn `at` of this block's columns.
  __device__ __forceinline__ void multiply_turn(const Raw& raw, uint64_t x, int at, Sums& sums) {
    constexpr int kParts = Operand::kParts;
    Operand operands[kPieces * kParts];
#pragma unroll
    for (int q = 0; q < kPieces * kParts; ++q) {
      uint32_t scales[2] = {};
      if constexpr (kHasScales)
#pragma unroll
        for (int high = 0; high < 2; ++high)
          scales[high] =
              nvfp4_multiplier(raw.scales[q / kParts][high] >> (8 * (q % kParts)) & 0xFFU);
      operands[q].widen(raw.rows[q / kParts][0], raw.rows[q / kParts][1], q % kParts, scales);
    }
    const uint64_t lines = x + at * kTurnSteps / 4 * (kLineBytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kTurnSteps; ++j)
      multiply_rows<kN8>(sums.of[j % 2], operands[j / Operand::kSteps].a[j % Operand::kSteps],
                         lines + j / 4 * (kLineBytes >> 4) + j % 4 * 2);
    wgmma_commit();
  }
  /// Of this warpgroup's 128 columns of each stage, two apart.
  __device__ __forceinline__ const float* block_factors(int tile, int half) const {
    const DeviceLinear& w = plan_.weight;
    return w.factors + tile * kStreamRowTile / 128 * (w.cols / 128) + 2 * slice_begin_ + half;
  }

  /// Sums of a warp's 16 rows to the block that finishes them.
  __device__ __forceinline__ void send(int warp, int tiles_done, const Sums& sums) {
    const int each = 2 - plan_.rank_bits;  // log2 of the warps whose rows one block finishes
    const int to_rank = warp % 4 >> each;
    const int place = ((rank_ * kStreamGroups + warp / 4) << each) + warp % 4 - (to_rank << each);
    const uint32_t to = of_rank(shared_address(sums_), to_rank) +
                        (place * kN8 * 32 + static_cast<int>(threadIdx.x % 32)) * 16;
    const uint32_t full = of_rank(shared_address(&barriers_.sums_full), to_rank);
    if (tiles_done > 0) barrier_wait(shared_address(&barriers_.sums_empty), (tiles_done - 1) & 1);
#pragma unroll
    for (int j = 0; j < kN8; ++j)
      store_there(to + j * 512,
                  make_float4(sums.total(4 * j), sums.total(4 * j + 1), sums.total(4 * j + 2),
                              sums.total(4 * j + 3)),
                  full);
  }

  // ---- the warps that finish ----

  __device__ __forceinline__ void finish_all() {
    wait_for_inputs();
    int tiles_done = 0;
#pragma unroll 1
    for (int row_begin = 0; row_begin < plan_.rows; row_begin += kTokens)
#pragma unroll 1
      for (int tile = cluster_; tile < plan_.tiles; tile += plan_.clusters) {
        const int row = tile * kStreamRowTile + (rank_ * kStreamRowTile >> plan_.rank_bits);
        const bool last = row_begin + kTokens >= plan_.rows && tile + plan_.clusters >= plan_.tiles;
        if constexpr (kN8 > 1)
          finish_many(row, row_begin, tiles_done, last);
        else
          finish_few(row, row_begin, tiles_done, last);
        ++tiles_done;
      }
  }
  __device__ __forceinline__ int finisher() const {
    return static_cast<int>(threadIdx.x) - kStreamMultipliers * 32;
  }
  __device__ __forceinline__ void wait_sums(int tiles_done) const {
    barrier_wait(shared_address(&barriers_.sums_full), tiles_done & 1);
  }
  /// Before any block of the cluster hears that there is room. Nothing comes to a block after the
  /// last sums, so that it may leave.
  __device__ __forceinline__ void release_sums(bool last) const {
    if (last) return;
    if (finisher() == 0) expect_bytes(shared_address(&barriers_.sums_full), stream_sum_bytes(kN8));
    sync_finishers();
    if (finisher() < 1 << plan_.rank_bits)
      arrive_there(of_rank(shared_address(&barriers_.sums_empty), finisher()));
  }
  __device__ __forceinline__ static void sync_finishers() {
    asm volatile("bar.sync 4, %0;" ::"n"(kStreamFinishers * 32) : "memory");
  }

  /// Up to 8 tokens. A thread has one row and every so many-th token.
  __device__ __forceinline__ void finish_few(int row_begin, int first_token, int tiles_done,
                                             bool last) const {
    constexpr int kOutputs = kStreamRowTile / 2 * kTokens / (kStreamFinishers * 32);
    const int row_bits = 6 - plan_.rank_bits;  // log2 of the rows
    const int local = finisher() & ((1 << row_bits) - 1);
    const int row = row_begin + local;
    const int token_begin = finisher() >> row_bits;
    const int token_step = kStreamFinishers * 32 >> row_bits;
    const int tokens = row < plan_.weight.rows ? min(kTokens, plan_.rows - first_token) : 0;
    const float factor = tokens > 0 ? row_factor(plan_.weight, row) : 0.0F;
    float* y = plan_.y + (first_token + token_begin) * plan_.y_stride + row;
    const int64_t y_step = token_step * plan_.y_stride;
    float total[kOutputs];
    wait_sums(tiles_done);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) total[i] = sum_of(local, token_begin + i * token_step);
    release_sums(last);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i)
      if (token_begin + i * token_step < tokens) y[i * y_step] = __fmul_rn(total[i], factor);
  }
  /// Of row `row` of this block's and a token of 8; what is beyond them is some other sum.
  __device__ __forceinline__ float sum_of(int row, int token) const {
    const int at = (row / 16 * 32 + stream_group(row % 8) * 4 + token % 8 / 2) * 4 +
                   row % 16 / 8 * 2 + token % 2;
    const auto* sums = reinterpret_cast<const float*>(sums_) + at;
    const int stride = 512 >> plan_.rank_bits;  // floats of a warpgroup
    float total = sums[0];
#pragma unroll
    for (int part = 1; part < kStreamGroups * kStreamRanksMax; ++part)
      if (part < kStreamGroups << plan_.rank_bits) total += sums[part * stride];
    return total;
  }

  /// More tokens: four outputs at a time, two rows of two tokens, as the sums lie. A thread has two
  /// rows of every 16 and two tokens of every second 8.
  __device__ __forceinline__ void finish_many(int row_begin, int first_token, int tiles_done,
                                              bool last) const {
    constexpr int kEach = kN8 / kStreamFinishers;
    constexpr int kSixteens = 2;  // of rows, at most
    const int lane = threadIdx.x % 32;
    const int eight = finisher() / 32;
    const int sixteens = 4 >> plan_.rank_bits;
    const int token = 8 * eight + 2 * (lane % 4);
    const int row = row_begin + stream_row(lane / 4);
    const int tokens = min(kTokens, plan_.rows - first_token);
    float* y = plan_.y + (first_token + token) * plan_.y_stride + row;
    // Output `i` of eights `e`, sixteens `s`: i % 2 the token, i / 2 the upper row.
    const auto place = [&](int s, int e, int i) {
      return y + (e * 8 * kStreamFinishers + i % 2) * plan_.y_stride + s * 16 + i / 2 * 8;
    };
    const auto writes = [&](int s, int e, int i) {
      return s < sixteens && token + e * 8 * kStreamFinishers + i % 2 < tokens &&
             row + s * 16 + i / 2 * 8 < plan_.weight.rows;
    };
    float factor[kSixteens][2];
#pragma unroll
    for (int s = 0; s < kSixteens; ++s)
#pragma unroll
      for (int high = 0; high < 2; ++high)
        factor[s][high] =
            row_factor(plan_.weight, min(row + s * 16 + high * 8, plan_.weight.rows - 1));
    float4 total[kSixteens][kEach];
    wait_sums(tiles_done);
#pragma unroll
    for (int s = 0; s < kSixteens; ++s)
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        if (s >= sixteens) continue;
        const float4 sum = sum_of_four((s * kN8 + e * kStreamFinishers + eight) * 32 + lane);
        total[s][e] = make_float4(__fmul_rn(sum.x, factor[s][0]), __fmul_rn(sum.y, factor[s][0]),
                                  __fmul_rn(sum.z, factor[s][1]), __fmul_rn(sum.w, factor[s][1]));
      }
    release_sums(last);
#pragma unroll
    for (int s = 0; s < kSixteens; ++s)
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const float* value = reinterpret_cast<const float*>(&total[s][e]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (writes(s, e, i)) *place(s, e, i) = value[i];
      }
  }
  __device__ __forceinline__ float4 sum_of_four(int at) const {
    const auto* sums = reinterpret_cast<const float4*>(sums_) + at;
    const int stride = 4 * kN8 * 32 >> plan_.rank_bits;
    float4 total = sums[0];
#pragma unroll
    for (int part = 1; part < kStreamGroups * kStreamRanksMax; ++part) {
      if (part >= kStreamGroups << plan_.rank_bits) continue;
      const float4 more = sums[part * stride];
      total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
    }
    return total;
  }

  const StreamPlan& plan_;
  int cluster_, rank_;
  StreamBarriers& barriers_;
  uint8_t *x_, *sums_, *ring_;
  int slice_begin_, slices_, steps_;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

#endif  // NIBBLE_HAS_WGMMA

}  // namespace nibble::cuda
