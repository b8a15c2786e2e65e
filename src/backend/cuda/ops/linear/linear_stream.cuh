// One block of linear_stream.cu. A cluster of two, four or eight blocks multiplies tiles of 64 rows
// of W with 8 kN8 tokens, each block a share of the columns that the shape alone decides. In a
// block,
//   two warps load the weights into pipeline stages, without waiting for inputs;
//   two warpgroups widen them into operands and multiply, each a half of every stage;
//   two warps finish: the sums of all warpgroups of the cluster are sent to the shared memory of
//   the block that finishes those rows (the first four share them), added in one order and stored,
//   added to y or, of gate and up, multiplied.
// The inputs lie in shared memory for all tiles, in the order linear_stream_parts.cuh says.
#pragma once

#include "backend/cuda/ops/linear/linear_stream_parts.cuh"
#include "backend/cuda/ops/linear/resident_groups.cuh"
#include "backend/cuda/ptx/copy.cuh"
#include "backend/cuda/ptx/wgmma.cuh"

namespace nibble::cuda {

struct StreamPlan {
  LinearSegment segments[kLinearsMax];  // gate_up: gate and up
  int32_t count = 0;
  uint16_t* act = nullptr;  // gate_up: BF16 [rows][act_stride]
  int64_t act_stride = 0;
  int32_t rows = 0;
  int32_t tiles = 0;
  int32_t clusters = 0;
  int32_t slices = 0;     // slices of 256 columns
  int32_t rank_bits = 1;  // log2 of the blocks of a cluster: 1, 2 or 3
  int32_t stages = 0;     // stages of the pipeline
  int32_t x_bytes = 0;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* gather = nullptr;
};

inline constexpr int kStreamMultipliers = kStreamGroups * 4;  // warps
inline constexpr int kStreamProducers = 2;                    // warps
inline constexpr int kStreamFinishers = 2;                    // warps
inline constexpr int kLinearThreads =
    (kStreamMultipliers + kStreamFinishers + kStreamProducers) * 32;
struct StreamBarriers {
  uint64_t full[kStreamStagesMax];
  uint64_t empty[kStreamStagesMax];
  uint64_t sums_full, sums_empty;
};
static_assert(sizeof(StreamBarriers) == kStreamBarrierBytes);

#ifdef NIBBLE_HAS_WGMMA

template <StreamKind kKind, Format kFormat, bool kBlocks, int kN8>
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
        stage_memory_(memory + plan.x_bytes + stream_sum_bytes(kN8, plan.rank_bits)),
        finish_bits_(min(plan.rank_bits, kStreamFinishBits)) {
    slice_begin_ = rank_ * plan.slices >> plan.rank_bits;
    slices_ = ((rank_ + 1) * plan.slices >> plan.rank_bits) - slice_begin_;
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
  static constexpr int kStageBytes = stage_bytes(kFormat);
  static constexpr int kRowBytes = stream_row_bytes(kFormat);
  static constexpr int kPitch = stream_pitch(kFormat);
  static constexpr int kScalesAt = kStreamRowTile * kPitch;  // in a stage
  static constexpr bool kHasScales = kFormat == Format::nvfp4;
  static constexpr bool kPairs = kKind == StreamKind::gate_up;
  static constexpr int kTokens = 8 * kN8;
  static constexpr int kLineBytes = kTokens * 128;
  static constexpr int kSumParts = kStreamGroups * stream_ranks_max(kKind);  // at most
  static constexpr int kSumPartsMin = kKind == StreamKind::head ? 4 : 8;

  __device__ __forceinline__ const LinearSegment& segment_of_tile(int tile) const {
    if constexpr (kKind != StreamKind::longs) return plan_.segments[0];
    return segment_of(plan_.segments, plan_.count, tile);
  }
  /// Row r of a tile is row first_row() + row_in_tile(r) of its matrix.
  __device__ __forceinline__ static int first_row(const LinearSegment& segment, int tile) {
    return kPairs ? tile * (kStreamRowTile / 2) : (tile - segment.tile_begin) * kStreamRowTile;
  }
  __device__ __forceinline__ static int row_in_tile(int r) {
    return kPairs ? r / 16 * 8 + r % 8 : r;
  }

  __device__ __forceinline__ void advance() {
    if (++slot_ == plan_.stages) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

  // ---- the producer warps, which load weights ----

  /// The first stages are loaded before the blocks of the cluster have arrived at their barrier.
  __device__ __forceinline__ void produce() {
    int loaded = 0;
#pragma unroll 1
    for (int row_begin = 0; row_begin < plan_.rows; row_begin += kTokens)
#pragma unroll 1
      for (int tile = cluster_; tile < plan_.tiles; tile += plan_.clusters)
#pragma unroll 1
        for (int slice = 0; slice < slices_; ++slice) {
          if (loaded++ == plan_.stages) wait_for_cluster();
          load_stage(tile, slice_begin_ + slice);
          advance();
        }
    if (loaded <= plan_.stages) wait_for_cluster();
  }
  /// Each warp loads its share of the rows.
  __device__ __forceinline__ void load_stage(int tile, int slice) const {
    const LinearSegment& segment = segment_of_tile(tile);
    const DeviceLinear& w = segment.out.weight;
    const DeviceLinear& high = kPairs ? plan_.segments[1].out.weight : w;
    constexpr int kRows = kStreamRowTile / kStreamProducers;
    constexpr int kLanes = kRowBytes / 16;  // lanes that copy a row
    const int lane = threadIdx.x % 32;
    const int first_row_of_warp =
        (static_cast<int>(threadIdx.x / 32) - kStreamMultipliers - kStreamFinishers) * kRows;
    const uint32_t full = shared_address(&barriers_.full[slot_]);
    const uint32_t to = shared_address(stage_memory_ + slot_ * kStageBytes);
    const int row = first_row(segment, tile);
    const auto row_of_tile = [&](int r) -> int64_t {
      return min(row + row_in_tile(r), w.rows - 1);
    };
    const int64_t row_bytes = value_bytes(kFormat, w.cols);
    const int64_t at = int64_t{slice} * kRowBytes + lane % kLanes * 16;
    barrier_wait(shared_address(&barriers_.empty[slot_]), parity_ ^ 1);
#pragma unroll
    for (int i = 0; i < kRows; i += 32 / kLanes) {
      const int r = first_row_of_warp + i + lane / kLanes;
      copy_async_16_of_line(to + r * kPitch + lane % kLanes * 16,
                            (i % 16 < 8 ? w : high).values + at + row_of_tile(r) * row_bytes);
    }
    if constexpr (kHasScales) {
      static_assert(kRows == 32 && kStreamScaleBytes == 16);
      const int r = first_row_of_warp + lane;
      copy_async_16_of_line(to + kScalesAt + r * kStreamScaleBytes,
                            (r % 16 < 8 ? w : high).scales + row_of_tile(r) * (w.cols / 16) +
                                slice * kStreamScaleBytes);
    }
    copy_async_arrive(full);
  }

  // ---- the consumer warps, which multiply ----

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
                        slice_begin_ * kStageColumns;
    uint8_t* to = x_ + eight * 1024 + g * 128 + 4 * t;
    const int lines = slices_ * (kStageColumns / 64);
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

  using Operand = Fragments<kFormat>;
  static constexpr int kHalfBytes = kRowBytes / kStreamGroups;  // a warpgroup's part of a row
  static constexpr int kChunks = kHalfBytes / 64;
  static constexpr int kSteps = kChunks * Operand::kParts * Operand::kSteps;  // steps of 16 columns
  static_assert(kSteps * 16 == kStageColumns / kStreamGroups);

  /// Raw has 16 bytes of each part of both rows of this lane.
  struct Raw {
    uint4 rows[kChunks][2];
    uint32_t scales[kChunks][2];
  };
  __device__ __forceinline__ void take_weights(int half, Raw& raw) const {
    const int lane = threadIdx.x % 32;
    const int row = static_cast<int>(threadIdx.x / 32 % 4) * 16 + stream_row(lane / 4);
    const uint8_t* stage = stage_memory_ + slot_ * kStageBytes;
    const uint8_t* at = stage + row * kPitch + kHalfBytes * half + 16 * (lane % 4);
#pragma unroll
    for (int i = 0; i < kChunks; ++i)
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        raw.rows[i][high] = *reinterpret_cast<const uint4*>(at + 8 * high * kPitch + 64 * i);
        if constexpr (kHasScales)
          raw.scales[i][high] = *reinterpret_cast<const uint16_t*>(
              stage + kScalesAt + (row + 8 * high) * kStreamScaleBytes + 8 * half + 2 * (lane % 4));
      }
  }
  /// There are two chains of sums, of even and of odd steps, because one product waits for the one
  /// before.
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
    BlockFactors factors;
    if constexpr (kBlocks) factors = block_factors(tile, half);
    const uint64_t x = wgmma_descriptor(shared_address(x_));
    Sums part;
    part.clear();
    sums.clear();
#pragma unroll 1
    for (int slice = 0; slice < slices_; ++slice) {
      float factor[2] = {1.0F, 1.0F};
      if constexpr (kBlocks) {
        factor[0] = factors.low[2 * slice];
        factor[1] = kPairs ? factors.high[2 * slice] : factor[0];
      }
      // Before anything is loaded, and with a branch between: the compiler takes registers that
      // products still read for what comes after them.
      wgmma_wait<0>();
      barrier_wait(shared_address(&barriers_.full[slot_]), parity_);
      Raw raw;
      take_weights(half, raw);
      barrier_arrive(shared_address(&barriers_.empty[slot_]));  // each lane for its own loads
      multiply_half(raw, x, slice * kStreamGroups + half, kBlocks ? part : sums);
      advance();
      if constexpr (kBlocks) {
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < 4 * kN8; ++i)
          sums.of[0][i] = fmaf(factor[i % 4 / 2], part.total(i), sums.of[0][i]);
        part.clear();
      }
    }
    wgmma_wait<0>();
  }
  /// Multiplies half a slice of this block's columns.
  __device__ __forceinline__ void multiply_half(const Raw& raw, uint64_t x, int at, Sums& sums) {
    constexpr int kParts = Operand::kParts;
    Operand operands[kChunks * kParts];
#pragma unroll
    for (int q = 0; q < kChunks * kParts; ++q) {
      uint32_t scales[2] = {};
      if constexpr (kHasScales)
#pragma unroll
        for (int high = 0; high < 2; ++high)
          scales[high] =
              nvfp4_multiplier(raw.scales[q / kParts][high] >> (8 * (q % kParts)) & 0xFFU);
      operands[q].widen(raw.rows[q / kParts][0], raw.rows[q / kParts][1], q % kParts, scales);
    }
    const uint64_t lines = x + at * kSteps / 4 * (kLineBytes >> 4);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kSteps; ++j)
      wgmma_bf16<kN8, Accumulate::always>(sums.of[j % 2],
                                          operands[j / Operand::kSteps].a[j % Operand::kSteps],
                                          lines + j / 4 * (kLineBytes >> 4) + j % 4 * 2);
    wgmma_commit();
  }
  /// BlockFactors has the factors of this warpgroup's 128 columns of each stage, two apart, for the
  /// low and the high groups of eight rows.
  struct BlockFactors {
    const float* low = nullptr;
    const float* high = nullptr;
  };
  __device__ __forceinline__ BlockFactors block_factors(int tile, int half) const {
    const LinearSegment& segment = segment_of_tile(tile);
    const DeviceLinear& w = segment.out.weight;
    const int64_t at =
        int64_t{first_row(segment, tile) / 128} * (w.cols / 128) + 2 * slice_begin_ + half;
    return {w.factors + at, plan_.segments[kPairs ? 1 : 0].out.weight.factors + at};
  }

  /// Sends the sums of a warp's 16 rows to the block that finishes them.
  __device__ __forceinline__ void send(int warp, int tiles_done, const Sums& sums) {
    const int each = 2 - finish_bits_;  // log2 of the warps whose rows one block finishes
    const int to_rank = warp % 4 >> each;
    const int place = ((rank_ * kStreamGroups + warp / 4) << each) + warp % 4 - (to_rank << each);
    const uint32_t to = address_in_block(shared_address(sums_), to_rank) +
                        (place * kN8 * 32 + static_cast<int>(threadIdx.x % 32)) * 16;
    const uint32_t full = address_in_block(shared_address(&barriers_.sums_full), to_rank);
    if (tiles_done > 0) barrier_wait(shared_address(&barriers_.sums_empty), (tiles_done - 1) & 1);
#pragma unroll
    for (int j = 0; j < kN8; ++j)
      store_async_16(to + j * 512,
                     make_float4(sums.total(4 * j), sums.total(4 * j + 1), sums.total(4 * j + 2),
                                 sums.total(4 * j + 3)),
                     full);
  }

  // ---- the warps that finish ----

  __device__ __forceinline__ void finish_all() {
    wait_for_inputs();
    if (rank_ >= 1 << finish_bits_) return;
    int tiles_done = 0;
#pragma unroll 1
    for (int row_begin = 0; row_begin < plan_.rows; row_begin += kTokens)
#pragma unroll 1
      for (int tile = cluster_; tile < plan_.tiles; tile += plan_.clusters) {
        const bool last = row_begin + kTokens >= plan_.rows && tile + plan_.clusters >= plan_.tiles;
        finish(tile, row_begin, tiles_done, last);
        ++tiles_done;
      }
  }
  __device__ __forceinline__ int finisher() const {
    return static_cast<int>(threadIdx.x) - kStreamMultipliers * 32;
  }
  __device__ __forceinline__ void wait_sums(int tiles_done) const {
    barrier_wait(shared_address(&barriers_.sums_full), tiles_done & 1);
  }
  /// Tells the cluster that there is room for sums, once this block expects them. Nothing comes to
  /// a block after the last sums, so that it may leave.
  __device__ __forceinline__ void release_sums(bool last) const {
    if (last) return;
    if (finisher() == 0)
      barrier_expect(shared_address(&barriers_.sums_full), stream_sum_bytes(kN8, plan_.rank_bits));
    sync_finishers();
    if (finisher() < 1 << plan_.rank_bits)
      barrier_arrive_in_cluster(
          address_in_block(shared_address(&barriers_.sums_empty), finisher()));
  }
  __device__ __forceinline__ static void sync_multipliers() {
    sync_threads<1, kStreamGroups * 128>();
  }
  __device__ __forceinline__ static void sync_finishers() {
    sync_threads<4, kStreamFinishers * 32>();
  }

  /// Finishes this block's rows of a tile in units of 16 rows x 8 tokens, as one warp sent them;
  /// the finishing warps alternate. A thread has two rows of a unit and two tokens.
  __device__ __forceinline__ void finish(int tile, int first_token, int tiles_done,
                                         bool last) const {
    constexpr int kSixteens = kKind == StreamKind::head ? 2 : 1;  // groups of 16 rows, at most
    constexpr int kUnits = ceil_div(kSixteens * kN8, kStreamFinishers);  // units of a warp
    const int lane = threadIdx.x % 32;
    const int warp = finisher() / 32;
    const int sixteens = 4 >> finish_bits_;
    // These return the groups of eight tokens and of sixteen rows of unit u, beyond the first.
    const auto eight = [](int u) { return u * kStreamFinishers % kN8; };
    const auto sixteen = [](int u) { return u * kStreamFinishers / kN8; };
    const int first_eight = kN8 > 1 ? warp : 0;
    const int first_sixteen = kN8 > 1 ? 0 : warp;
    const auto works = [&](int u) {
      return (kN8 > 1 && sixteen(u) == 0) || sixteen(u) + first_sixteen < sixteens;
    };
    const LinearSegment& segment = segment_of_tile(tile);
    const LinearOutput& out = segment.out;
    const int rows = out.weight.rows;
    const int tokens = min(kTokens, plan_.rows - first_token);
    const int token = 8 * first_eight + 2 * (lane % 4);
    const int row = first_row(segment, tile) +
                    row_in_tile(16 * (rank_ * sixteens + first_sixteen) + stream_row(lane / 4));
    const int step = kPairs ? 0 : 8;  // to the row of the upper half
    const auto token_of = [&](int u, int i) { return 8 * eight(u) + i % 2; };  // beyond `token`
    const auto row_of = [&](int u, int i) { return 16 * sixteen(u) + i / 2 * step; };  // `row`
    float* y = out.y + (first_token + token) * out.y_stride + row;
    const auto place = [&](int u, int i) {
      return y + token_of(u, i) * out.y_stride + row_of(u, i);
    };
    const auto each = [&](auto&& what) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (works(u) && token + token_of(u, i) < tokens && row + row_of(u, i) < rows) what(u, i);
    };
    float factor[kSixteens][2];
#pragma unroll
    for (int s = 0; s < kSixteens; ++s)
#pragma unroll
      for (int high = 0; high < 2; ++high)
        factor[s][high] =
            row_factor(high == 1 && kPairs ? plan_.segments[1].out.weight : out.weight,
                       min(row + 16 * s + high * step, rows - 1));
    float old[kUnits][4] = {};
    if constexpr (kKind == StreamKind::longs)
      if (out.finish == Finish::add) each([&](int u, int i) { old[u][i] = *place(u, i); });
    float4 sums[kUnits] = {};
    wait_sums(tiles_done);
#pragma unroll
    for (int begin = 0; begin < kSumParts; begin += 4) {
      if (begin >= kSumPartsMin && begin >= kStreamGroups << plan_.rank_bits) break;
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
        if (works(u)) add_four(begin, (u * kStreamFinishers + warp) * 32 + lane, sums[u]);
    }
    release_sums(last);
    float value[kUnits][4];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const float(&by)[2] = factor[sixteen(u)];
      value[u][0] = __fmul_rn(sums[u].x, by[0]), value[u][1] = __fmul_rn(sums[u].y, by[0]);
      value[u][2] = __fmul_rn(sums[u].z, by[1]), value[u][3] = __fmul_rn(sums[u].w, by[1]);
    }
    each([&](int u, int i) {
      if constexpr (kPairs) {
        if (i < 2)
          plan_.act[(first_token + token + token_of(u, i)) * plan_.act_stride + x_place(row)] =
              to_bf16(__fmul_rn(silu(value[u][i]), value[u][i + 2]));
      } else {
        const bool adds = kKind == StreamKind::longs && out.finish == Finish::add;
        *place(u, i) = adds ? __fadd_rn(old[u][i], value[u][i]) : value[u][i];
      }
    });
  }
  /// Adds the sums of four warpgroups of the cluster, from `begin` on; there is no branch, so all
  /// four are loaded at once.
  __device__ __forceinline__ void add_four(int begin, int at, float4& sum) const {
    const auto* sums = reinterpret_cast<const float4*>(sums_) + at;
    const int stride = 4 * kN8 * 32 >> finish_bits_;
    float4 more[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) more[i] = sums[(begin + i) * stride];
#pragma unroll
    for (const float4& m : more) sum.x += m.x, sum.y += m.y, sum.z += m.z, sum.w += m.w;
  }

  const StreamPlan& plan_;
  int cluster_, rank_;
  StreamBarriers& barriers_;
  uint8_t *x_, *sums_, *stage_memory_;
  int finish_bits_;  // log2 of the blocks that finish rows
  int slice_begin_, slices_;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

#endif  // NIBBLE_HAS_WGMMA

}  // namespace nibble::cuda
