// One block of linear_stream.cu. A cluster of `ranks` blocks multiplies tiles of 64 rows of W with
// 8 kN8 tokens, each block a share of the columns that the shape alone decides. In a block,
//   two warps ask for the weights, into a ring of stages, without waiting for inputs;
//   two warpgroups widen them into operands and multiply, each a half of every stage;
//   the rest finish: the sums of all warpgroups of the cluster meet in the shared memory of the
//   block that finishes those rows, are added in one order and stored, added to y or convolved.
// The inputs lie in shared memory for all tiles, in the order linear_stream_parts.cuh says.
#pragma once

#include "backend/cuda/convolve_output.cuh"
#include "backend/cuda/linear_stream_parts.cuh"

namespace nibble::cuda {

struct StreamSegment {
  LinearOutput out;
  int32_t tile_begin = 0;
};
/// Matrices of one format.
struct StreamGroup {
  StreamSegment segments[kLinearsMax];
  int32_t count = 0;
  int32_t tiles = 0;
  int32_t clusters = 0;
};
struct StreamPlan {
  StreamGroup first, second;
  int32_t rows = 0;
  int32_t slices = 0;     // of 256 columns
  int32_t rank_bits = 1;  // log2 of the blocks of a cluster: 1 or 2
  int32_t stages = 0;     // of the ring
  int32_t x_bytes = 0;
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* gather = nullptr;
  NormInput norm;
  ConvolveOutput convolve;
};

inline constexpr int kStreamMultipliers = kStreamGroups * 4;  // warps
inline constexpr int kStreamProducers = 2;                    // warps
inline constexpr int kStreamStagesMax = 8;
inline constexpr int kStreamRanksMax = 4;
inline constexpr int kStreamNormPieces = 4;  // of 128 columns, a warp
inline constexpr int kStreamFinishers = 2;   // warps
inline constexpr int kLinearThreads =
    (kStreamMultipliers + kStreamFinishers + kStreamProducers) * 32;
/// Sums of the rows a block finishes: of each warpgroup of the cluster, whatever its size.
constexpr int stream_sum_bytes(int n8) { return n8 * 4096; }

struct StreamBarriers {
  uint64_t full[kStreamStagesMax];
  uint64_t empty[kStreamStagesMax];
  uint64_t sums_full, sums_empty;
  float pieces[kStreamMultipliers * kStreamNormPieces];
};

#ifdef NIBBLE_HAS_WGMMA

template <Format kFormat, bool kBlocks, int kN8>
class StreamBody {
 public:
  __device__ __forceinline__ StreamBody(const StreamPlan& plan, const StreamGroup& group,
                                        int cluster, uint8_t* memory, StreamBarriers& barriers)
      : plan_(plan),
        group_(group),
        cluster_(cluster),
        rank_(cluster_rank()),
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
      cluster_wait();
      multiply_all(warp);
    } else {
      cluster_wait();
      finish_all();
    }
  }

 private:
  static constexpr int kColumns = stage_columns(kFormat);
  static constexpr int kStageBytes = stage_bytes(kFormat);
  static constexpr bool kHasScales = kFormat == Format::nvfp4;
  static constexpr int kTokens = 8 * kN8;
  static constexpr int kLineBytes = kTokens * 128;

  __device__ __forceinline__ const StreamSegment& segment_of(int tile) const {
    int s = 0;
#pragma unroll 1
    while (s + 1 < group_.count && tile >= group_.segments[s + 1].tile_begin) ++s;
    return group_.segments[s];
  }
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
      for (int tile = cluster_; tile < group_.tiles; tile += group_.clusters) {
        const StreamSegment& segment = segment_of(tile);
        const DeviceLinear& w = segment.out.weight;
        const int row = (tile - segment.tile_begin) * kStreamRowTile;
#pragma unroll 1
        for (int step = 0; step < steps_; ++step) {
          if (asked++ == plan_.stages) cluster_wait();
          ask(w, row, step);
          advance();
        }
      }
    if (asked <= plan_.stages) cluster_wait();
  }
  /// Each warp asks for its share of the rows, a row by 16 lanes.
  __device__ __forceinline__ void ask(const DeviceLinear& w, int row, int step) const {
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
    if (plan_.norm.h == nullptr) wait_for_inputs();
#pragma unroll 1
    for (int row_begin = 0; row_begin < plan_.rows; row_begin += kTokens) {
      if (row_begin > 0) sync_multipliers();
      if constexpr (!kTakesByStages) {
        if (kN8 == 1 && plan_.norm.h != nullptr)
          take_norm(warp);
        else
          take_all(warp, row_begin);
        fence_async_proxy();
        sync_multipliers();
      }
      bool takes = kTakesByStages;
#pragma unroll 1
      for (int tile = cluster_; tile < group_.tiles; tile += group_.clusters) {
        Sums sums;
        if (takes)
          multiply_tile<kTakesByStages>(tile, warp, row_begin, sums);
        else
          multiply_tile<false>(tile, warp, row_begin, sums);
        takes = false;
        send(warp, tiles_done++, sums);
      }
    }
  }

  // Inputs are taken 8 tokens x 64 columns at a time by a warp, four lanes a token. Many tokens: by
  // each warpgroup for its own half of a stage, while the stage before is multiplied.
  static constexpr bool kTakesByStages = kN8 >= 4 && kFormat != Format::nvfp4;
  static constexpr int kStageLines = kColumns / kStreamGroups / 64;  // of a warpgroup
  /// A token of this lane.
  struct InputRow {
    const uint16_t* x;
    uint8_t* to;

    __device__ __forceinline__ void find(const StreamBody& body, int eight, int row_begin) {
      const StreamPlan& plan = body.plan_;
      const int g = static_cast<int>(threadIdx.x % 32) / 4;
      const int token = min(row_begin + 8 * eight + g, plan.rows - 1);
      x = plan.x + (plan.gather == nullptr ? token : plan.gather[token]) * plan.x_stride +
          body.slice_begin_ * kSliceColumns;
      to = body.x_ + eight * 1024 + g * 128 + 4 * (threadIdx.x % 4);
    }
    __device__ __forceinline__ uint4 load(int line, int e) const {
      const int t = threadIdx.x % 4;
      return *reinterpret_cast<const uint4*>(x + line_column<kFormat>(line, t, e));
    }
    __device__ __forceinline__ void store(int line, int e, const uint4& v) const {
      const int g = static_cast<int>(threadIdx.x % 32) / 4;
      const uint4 words = pair_inputs<kFormat>(v);
#pragma unroll
      for (int m = 0; m < 4; ++m)
        *reinterpret_cast<uint32_t*>(to + line * kLineBytes + (((4 * e + m) ^ g) << 4)) =
            word_of(words, m);
    }
  };
  __device__ __forceinline__ void take_all(int warp, int row_begin) const {
    InputRow row;
    row.find(*this, warp % kN8, row_begin);
    const int lines = slices_ * (kSliceColumns / 64);
#pragma unroll 4
    for (int line = warp / kN8; line < lines; line += kStreamMultipliers / kN8)
#pragma unroll
      for (int e = 0; e < 2; ++e) row.store(line, e, row.load(line, e));
  }
  /// What a warp takes of its warpgroup's half of a stage.
  struct InputStage {
    static constexpr int kEights = kN8 < 4 ? 1 : kN8 / 4;
    InputRow rows[kEights];
    uint4 v[kEights][kStageLines][2];

    __device__ __forceinline__ void find(const StreamBody& body, int warp, int row_begin) {
#pragma unroll
      for (int i = 0; i < kEights; ++i) rows[i].find(body, warp % 4 + 4 * i, row_begin);
    }
    template <typename Call>
    __device__ __forceinline__ static void for_each(int half_stage, int lines, const Call& call) {
#pragma unroll
      for (int l = 0; l < kStageLines; ++l)
        if (half_stage * kStageLines + l < lines)
#pragma unroll
          for (int i = 0; i < kEights; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e) call(i, half_stage * kStageLines + l, l, e);
    }
    __device__ __forceinline__ void load(int half_stage, int lines) {
      for_each(half_stage, lines,
               [&](int i, int line, int l, int e) { v[i][l][e] = rows[i].load(line, e); });
    }
    __device__ __forceinline__ void store(int half_stage, int lines) const {
      for_each(half_stage, lines,
               [&](int i, int line, int l, int e) { rows[i].store(line, e, v[i][l][e]); });
    }
  };

  /// x = bf16(norm(h)) of a single row, as add_norm makes it: squares by pieces of 128 columns.
  __device__ __forceinline__ void take_norm(int warp) const {
    const int lane = threadIdx.x % 32;
    const NormInput& in = plan_.norm;
    const auto load = [&](const float* from, int piece) {
      const int column = piece * 128 + 4 * lane;
      return column < in.columns ? *reinterpret_cast<const float4*>(from + column)
                                 : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    };
    const auto own = [&](int piece) {
      return piece >= 2 * slice_begin_ && piece < 2 * (slice_begin_ + slices_);
    };
    float4 weight[kStreamNormPieces];
    float4 h[kStreamNormPieces];
#pragma unroll
    for (int i = 0; i < kStreamNormPieces; ++i)
      if (own(warp + i * kStreamMultipliers))
        weight[i] = load(in.weight, warp + i * kStreamMultipliers);
    wait_for_inputs();
#pragma unroll
    for (int i = 0; i < kStreamNormPieces; ++i) h[i] = load(in.h, warp + i * kStreamMultipliers);
#pragma unroll
    for (int i = 0; i < kStreamNormPieces; ++i) {
      float squares = fmaf(h[i].x, h[i].x, 0.0F);
      squares = fmaf(h[i].y, h[i].y, squares);
      squares = fmaf(h[i].z, h[i].z, squares);
      squares = warp_sum(fmaf(h[i].w, h[i].w, squares));
      if (lane == 0) barriers_.pieces[warp + i * kStreamMultipliers] = squares;
    }
    sync_multipliers();
    float total = 0.0F;
#pragma unroll 4
    for (int piece = 0; piece < (in.columns + 127) / 128; ++piece) total += barriers_.pieces[piece];
    const float scale = rsqrtf(total / static_cast<float>(in.columns) + in.eps);
#pragma unroll
    for (int i = 0; i < kStreamNormPieces; ++i) {
      const int piece = warp + i * kStreamMultipliers;
      if (!own(piece)) continue;
      const uint32_t low = to_bf16_pair(__fmul_rn(weight[i].x, __fmul_rn(h[i].x, scale)),
                                        __fmul_rn(weight[i].y, __fmul_rn(h[i].y, scale)));
      const uint32_t high = to_bf16_pair(__fmul_rn(weight[i].z, __fmul_rn(h[i].z, scale)),
                                         __fmul_rn(weight[i].w, __fmul_rn(h[i].w, scale)));
      const uint2 words = pair_columns<kFormat>(low, high);
      const int column = (piece - 2 * slice_begin_) * 128 + 4 * lane;
      const LinePlace at = line_place<kFormat>(column & ~7);
      uint8_t* to = x_ + at.line * kLineBytes + 4 * at.t;  // of token 0
      const int chunk = 4 * at.half + 2 * (lane % 2);
      *reinterpret_cast<uint32_t*>(to + (chunk << 4)) = words.x;
      *reinterpret_cast<uint32_t*>(to + ((chunk + 1) << 4)) = words.y;
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

  /// kTakes: the inputs too.
  template <bool kTakes>
  __device__ __forceinline__ void multiply_tile(int tile, int warp, int row_begin, Sums& sums) {
    const int half = warp / 4;
    const int lines = slices_ * (kSliceColumns / 64);
    const float* factors = nullptr;
    if constexpr (kBlocks) factors = block_factors(tile, half);
    const uint64_t x = wgmma_descriptor(shared_address(x_));
    InputStage inputs;
    if constexpr (kTakes) {
      inputs.find(*this, warp, row_begin);
      inputs.load(half, lines);
    }
    Sums part;
    part.clear();
    sums.clear();
#pragma unroll 1
    for (int step = 0; step < steps_; ++step) {
      const int half_stage = step * kStreamGroups + half;
      const float factor = kBlocks && factors != nullptr ? factors[2 * step] : 1.0F;
      if constexpr (kTakes) {
        inputs.store(half_stage, lines);
        inputs.load(half_stage + kStreamGroups, lines);
        fence_async_proxy();
        sync_warpgroup(half);
      }
      const bool works = !kHasScales || half_stage * kStageLines < lines;
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
  /// Of this warpgroup's 128 columns of each stage, two apart; null: there are none.
  __device__ __forceinline__ const float* block_factors(int tile, int half) const {
    const StreamSegment& segment = segment_of(tile);
    const DeviceLinear& w = segment.out.weight;
    if (w.layout != FactorLayout::block128) return nullptr;
    return w.factors + (tile - segment.tile_begin) * kStreamRowTile / 128 * (w.cols / 128) +
           2 * slice_begin_ + half;
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
      for (int tile = cluster_; tile < group_.tiles; tile += group_.clusters) {
        const StreamSegment& segment = segment_of(tile);
        const int row = (tile - segment.tile_begin) * kStreamRowTile +
                        (rank_ * kStreamRowTile >> plan_.rank_bits);
        const bool last =
            row_begin + kTokens >= plan_.rows && tile + group_.clusters >= group_.tiles;
        if constexpr (kN8 > 1)
          finish_many(segment.out, row, row_begin, tiles_done, last);
        else if (segment.out.finish == Finish::convolve)
          finish_few<true>(segment.out, row, row_begin, tiles_done, last);
        else
          finish_few<false>(segment.out, row, row_begin, tiles_done, last);
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
  __device__ __forceinline__ static float factor_of(const DeviceLinear& w, int row) {
    return row_factor(w, row);
  }

  /// Up to 8 tokens. A thread has one row and every so many-th token.
  template <bool kConvolves>
  __device__ __forceinline__ void finish_few(const LinearOutput& out, int row_begin,
                                             int first_token, int tiles_done, bool last) const {
    constexpr int kOutputs = kStreamRowTile / 2 * kTokens / (kStreamFinishers * 32);
    constexpr int kAhead = kConvolves ? 2 : kOutputs;
    const int row_bits = 6 - plan_.rank_bits;  // log2 of the rows
    const int local = finisher() & ((1 << row_bits) - 1);
    const int row = row_begin + local;
    const int token_begin = finisher() >> row_bits;
    const int token_step = kStreamFinishers * 32 >> row_bits;
    const int tokens = row < out.weight.rows ? min(kTokens, plan_.rows - first_token) : 0;
    const float factor = tokens > 0 ? factor_of(out.weight, row) : 0.0F;
    float* y = out.y + (first_token + token_begin) * out.y_stride + row;
    const int64_t y_step = token_step * out.y_stride;
    float total[kOutputs];
#pragma unroll
    for (int base = 0; base < kOutputs; base += kAhead) {
      ConvolveAhead ahead[kAhead];
      float old[kAhead];
      bool writes[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int token = token_begin + (base + i) * token_step;
        writes[i] = token < tokens;
        if (!writes[i]) continue;
        if constexpr (kConvolves)
          writes[i] = look_ahead(plan_.convolve, row, first_token + token, ahead[i]);
        else if (out.finish == Finish::add)
          old[i] = y[(base + i) * y_step];
      }
      if (base == 0) {
        wait_sums(tiles_done);
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) total[i] = sum_of(local, token_begin + i * token_step);
        release_sums(last);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (!writes[i]) continue;
        const float value = __fmul_rn(total[base + i], factor);
        float* to = y + (base + i) * y_step;
        if constexpr (kConvolves)
          *to = convolve(plan_.convolve, ahead[i], value);
        else
          *to = out.finish == Finish::add ? __fadd_rn(old[i], value) : value;
      }
    }
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
  __device__ __forceinline__ void finish_many(const LinearOutput& out, int row_begin,
                                              int first_token, int tiles_done, bool last) const {
    constexpr int kEach = kN8 / kStreamFinishers;
    constexpr int kSixteens = 2;  // of rows, at most
    const int lane = threadIdx.x % 32;
    const int eight = finisher() / 32;
    const int sixteens = 4 >> plan_.rank_bits;
    const int token = 8 * eight + 2 * (lane % 4);
    const int row = row_begin + stream_row(lane / 4);
    const int tokens = min(kTokens, plan_.rows - first_token);
    const bool adds = out.finish == Finish::add;
    float* y = out.y + (first_token + token) * out.y_stride + row;
    // Output `i` of eights `e`, sixteens `s`: i % 2 the token, i / 2 the upper row.
    const auto place = [&](int s, int e, int i) {
      return y + (e * 8 * kStreamFinishers + i % 2) * out.y_stride + s * 16 + i / 2 * 8;
    };
    const auto writes = [&](int s, int e, int i) {
      return s < sixteens && token + e * 8 * kStreamFinishers + i % 2 < tokens &&
             row + s * 16 + i / 2 * 8 < out.weight.rows;
    };
    float factor[kSixteens][2];
#pragma unroll
    for (int s = 0; s < kSixteens; ++s)
#pragma unroll
      for (int high = 0; high < 2; ++high)
        factor[s][high] = factor_of(out.weight, min(row + s * 16 + high * 8, out.weight.rows - 1));
    float4 total[kSixteens][kEach];
    if (adds) {
#pragma unroll
      for (int s = 0; s < kSixteens; ++s)
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
          float* old = reinterpret_cast<float*>(&total[s][e]);
#pragma unroll
          for (int i = 0; i < 4; ++i) old[i] = writes(s, e, i) ? *place(s, e, i) : 0.0F;
        }
    }
    wait_sums(tiles_done);
#pragma unroll
    for (int s = 0; s < kSixteens; ++s)
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        if (s >= sixteens) continue;
        const float4 sum = sum_of_four((s * kN8 + e * kStreamFinishers + eight) * 32 + lane);
        const float4 value =
            make_float4(__fmul_rn(sum.x, factor[s][0]), __fmul_rn(sum.y, factor[s][0]),
                        __fmul_rn(sum.z, factor[s][1]), __fmul_rn(sum.w, factor[s][1]));
        float4& to = total[s][e];
        to = adds ? make_float4(__fadd_rn(to.x, value.x), __fadd_rn(to.y, value.y),
                                __fadd_rn(to.z, value.z), __fadd_rn(to.w, value.w))
                  : value;
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
  const StreamGroup& group_;
  int cluster_, rank_;
  StreamBarriers& barriers_;
  uint8_t *x_, *sums_, *ring_;
  int slice_begin_, slices_, steps_;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

#endif  // NIBBLE_HAS_WGMMA

}  // namespace nibble::cuda
