// Experts in generation arithmetic with the inputs held in shared memory. A block walks
// neighbouring tiles of neighbouring experts; an item is one expert with up to 8 of its tokens.
// gate_up: a tile is 8 rows of gate and the same 8 of up. A single row goes without kernels
// between: gate_up norms it and chooses its experts, down_sum adds what they return to the residual
// stream. Bound: the bytes of the experts that have tokens, each read once (for every 8 of its
// tokens).
#include <bit>

#include "backend/cuda/choose.cuh"
#include "backend/cuda/experts_held.h"
#include "backend/cuda/held.cuh"
#include "backend/cuda/launch.cuh"

namespace nibble::cuda {
namespace {

struct Plan {
  ExpertArgs args;
  int32_t slices = 0;
  int32_t per_step = 0;                        // tiles a block multiplies at once
  int32_t per_step_log = 0;                    // its binary logarithm
  int32_t routed_tiles = 0, routed_steps = 0;  // of one item; 0: none
  int32_t shared_tiles = 0, shared_steps = 0;
};

/// One expert (-1: the shared one) with up to 8 tokens.
struct Item {
  int expert = -1;
  int first = 0;  // of its assignments; shared: its row
  int count = 0;
  int tiles = 0;
  int steps = 0;
};

constexpr int kThreads = kHeldWarps * 32;
constexpr int kRowBlocks = 4;  // of a multiprocessor, for a single row

struct alignas(16) Shared {
  TileSums sums[2][kHeldWarps];
  int rows[kTokenTile];  // output rows of the tokens of an item
};
constexpr int shared_bytes(int slices) {
  return static_cast<int>(sizeof(Shared)) + held_words(Format::nvfp4, slices, 1) * 16;
}
/// Blocks of a multiprocessor: as many as registers hold.
constexpr int blocks_wanted(ExpertPart part) { return part == ExpertPart::gate_up ? 3 : 4; }

/// Item of a step, and the step's place in it.
__device__ __forceinline__ Item item_of(const Plan& plan, int step, int& place) {
  const ExpertArgs& a = plan.args;
  const int shared_all = plan.shared_steps * ((a.rows + kTokenTile - 1) / kTokenTile);
  Item item;
  if (step < shared_all) {
    item.first = step / plan.shared_steps * kTokenTile;
    item.count = min(kTokenTile, a.rows - item.first);
    item.tiles = plan.shared_tiles;
    item.steps = plan.shared_steps;
    place = step % plan.shared_steps;
    return item;
  }
  const int index = (step - shared_all) / plan.routed_steps;
  place = (step - shared_all) % plan.routed_steps;
  item.tiles = plan.routed_tiles;
  item.steps = plan.routed_steps;
  const int4 packed = a.routing.items[index];
  item.expert = packed.x;
  item.first = packed.y;
  item.count = packed.z;
  return item;
}

__device__ __forceinline__ const DeviceLinear& low_of(const ExpertArgs& a, int expert) {
  return expert < 0 ? a.shared_low : a.routed_low;
}
__device__ __forceinline__ const DeviceLinear& high_of(const ExpertArgs& a, int expert) {
  return expert < 0 ? a.shared_high : a.routed_high;
}

__device__ __forceinline__ float factor_of(const DeviceLinear& w, int expert, int row) {
  const float* f = w.factors + max(expert, 0) * w.factor_stride;
  if (w.layout == FactorLayout::row) return f[row];
  if (w.layout != FactorLayout::scalar) return 1.0F;
  return w.format == Format::nvfp4 ? f[0] * kNvfp4Unscale : f[0];
}

/// Where a lane reads its two rows of a tile; tiles follow each other at a fixed distance.
struct TilePointers {
  const uint8_t* values;
  const uint8_t* scales;
  int64_t to_high_values, to_high_scales;  // from the low row to the high one
};

template <ExpertPart kPart, Format kFormat>
__device__ __forceinline__ TilePointers tile_at(const ExpertArgs& a, int expert, int tile) {
  const DeviceLinear& low = low_of(a, expert);
  const DeviceLinear& high = high_of(a, expert);
  const int g = static_cast<int>(threadIdx.x % 32) / 4;
  const int row = kPart == ExpertPart::gate_up ? 8 * tile + g : kRowTile * tile + lane_row(g, 0);
  const int64_t base = static_cast<int64_t>(max(expert, 0)) * low.rows + row;
  const RowPointers first = row_of<kFormat>(low, base);
  const RowPointers second = row_of<kFormat>(high, kPart == ExpertPart::gate_up ? base : base + 2);
  return {.values = first.values,
          .scales = first.scales,
          .to_high_values = second.values - first.values,
          .to_high_scales = second.scales - first.scales};
}

template <Format kFormat>
__device__ __forceinline__ void load_tile(const TilePointers& at, int slice,
                                          RawSlice<load_count(kFormat)>& raw) {
  load_slice<kFormat>(
      {.values = at.values, .scales = at.scales},
      {.values = at.values + at.to_high_values, .scales = at.scales + at.to_high_scales}, slice,
      raw);
}

template <ExpertPart kPart, Format kFormat>
class Walk {
 public:
  using Raw = RawSlice<load_count(kFormat)>;
  static constexpr int kTileRows = kPart == ExpertPart::gate_up ? 8 : kRowTile;

  __device__ __forceinline__ Walk(const Plan& plan, Shared& shared, uint4* x)
      : plan_(plan),
        a_(plan.args),
        shared_(shared),
        x_(x),
        local_(static_cast<int>(threadIdx.x) / 32 / plan.slices),
        slice_(static_cast<int>(threadIdx.x) / 32 % plan.slices) {}

  /// The steps of one item from `begin` to `end`.
  __device__ __forceinline__ void run(const Item& item, int begin, int end) {
    item_ = item;
    end_ = end;
    at_ = tile_at<kPart, kFormat>(a_, item.expert, begin * plan_.per_step + local_);
    Raw raw;
    load_next(begin, raw);
    take_inputs();
    const DeviceLinear& low = low_of(a_, item.expert);
    low_factor_ = factor_of(low, item.expert, 0);
    if (kPart == ExpertPart::gate_up)
      high_factor_ = factor_of(high_of(a_, item.expert), item.expert, 0);
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int step = begin; step < end; ++step) {
      float acc[1][4] = {};
      constexpr float kNone[2] = {1.0F, 1.0F};
      if (works(step))
        multiply_held<kFormat, false>(raw, x_ + slice_ * (unit_count(kFormat) * 32), kNone, acc);
      load_next(step + 1, raw);
      store_sums(&shared_.sums[turn_][warp], acc);
      __syncthreads();
      // Two tokens of a tile to a warp, other warps from step to step; most items have few tokens.
      const int pieces = plan_.per_step * ((item_.count + 1) / 2);
#pragma unroll 1
      for (int piece = (warp + turn_ * kHeldWarps / 2) % kHeldWarps; piece < pieces;
           piece += kHeldWarps)
        write(step, piece & (plan_.per_step - 1), piece >> plan_.per_step_log);
      turn_ ^= 1;
    }
  }

 private:
  __device__ __forceinline__ int64_t output_row(int token) const {
    if (item_.expert < 0) return a_.shared_begin + item_.first + token;
    return a_.routing.assignments[item_.first + token];
  }
  /// Inputs of the item's tokens into shared memory, behind whoever reads the item before.
  __device__ __forceinline__ void take_inputs() {
    __syncthreads();
    if (threadIdx.x < kTokenTile)
      shared_.rows[threadIdx.x] =
          static_cast<int>(output_row(min(static_cast<int>(threadIdx.x), item_.count - 1)));
    const InputRows<1> rows([&](int index) -> const uint16_t* {
      const int token = min(index, item_.count - 1);
      const int64_t out = output_row(token);
      if (kPart == ExpertPart::down) return a_.act + out * a_.act_stride;
      return a_.x + (item_.expert < 0 ? item_.first + token : out / a_.top_k) * a_.x_stride;
    });
#pragma unroll 1
    for (int slice = threadIdx.x / 32; slice < plan_.slices; slice += kHeldWarps)
      hold<kFormat>(rows, slice, x_ + slice * (unit_count(kFormat) * 32));
    __syncthreads();
  }
  __device__ __forceinline__ bool works(int step) const {
    return step < end_ && local_ < plan_.per_step && step * plan_.per_step + local_ < item_.tiles;
  }
  /// The tile of the next step.
  __device__ __forceinline__ void load_next(int step, Raw& raw) {
    if (!works(step)) return;
    load_tile<kFormat>(at_, slice_, raw);
    const int rows = kTileRows * plan_.per_step;
    const int cols = low_of(a_, item_.expert).cols;
    at_.values += rows * static_cast<int>(value_bytes(kFormat, cols));
    at_.scales += rows * (cols / 16);
  }
  /// Tokens 2 pair and 2 pair + 1 of a tile of the step, by one warp.
  __device__ __forceinline__ void write(int step, int local, int pair) const {
    const int lane = threadIdx.x % 32;
    const int tile = step * plan_.per_step + local;
    const int place = lane / 4 * 16 + 4 * pair + lane % 4;
    const int token = tile_token(place);
    const float total =
        add_parts(&shared_.sums[turn_][local * plan_.slices], plan_.slices, 1, place);
    const bool writes = token < item_.count && tile < item_.tiles;
    const DeviceLinear& w = low_of(a_, item_.expert);
    if constexpr (kPart == ExpertPart::gate_up) {
      const float up = __shfl_xor_sync(kAllLanes, total, 2);
      const int n = 8 * tile + lane / 4;
      if (!writes || (lane & 2) != 0) return;
      const bool by_row = w.layout == FactorLayout::row;
      const float low = by_row ? factor_of(w, item_.expert, n) : low_factor_;
      const float high =
          by_row ? factor_of(high_of(a_, item_.expert), item_.expert, n) : high_factor_;
      a_.act[shared_.rows[token] * a_.act_stride + x_place(n)] =
          to_bf16(silu(total * low) * (up * high));
    } else {
      const int n = kRowTile * tile + tile_row(place);
      if (!writes) return;
      const float low = w.layout == FactorLayout::row ? factor_of(w, item_.expert, n) : low_factor_;
      a_.y[shared_.rows[token] * a_.y_stride + n] = __fmul_rn(total, low);
    }
  }

  const Plan& plan_;
  const ExpertArgs& a_;
  Shared& shared_;
  uint4* x_;
  Item item_;
  TilePointers at_;
  float low_factor_ = 1.0F, high_factor_ = 1.0F;
  int local_, slice_;
  int end_ = 0;
  int turn_ = 0;
};

template <ExpertPart kPart, Format kFormat>
__global__ void __launch_bounds__(kThreads, blocks_wanted(kPart))
    held_experts_kernel(const __grid_constant__ Plan plan) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  uint4* x = reinterpret_cast<uint4*>(&shared + 1);
  touch(plan);
  const ExpertArgs& a = plan.args;
  wait_for_inputs();
  const int items = plan.routed_steps == 0 ? 0 : *a.routing.item_count;
  const int steps =
      plan.shared_steps * ((a.rows + kTokenTile - 1) / kTokenTile) + items * plan.routed_steps;
  const int each = steps / static_cast<int>(gridDim.x);
  const int more = steps - each * static_cast<int>(gridDim.x);  // blocks with one step more
  const int block = blockIdx.x;
  int step = block * each + min(block, more);
  const int end = step + each + (block < more ? 1 : 0);
  Walk<kPart, kFormat> walk(plan, shared, x);
  while (step < end) {
    int place = 0;
    const Item item = item_of(plan, step, place);
    const int last = min(item.steps, place + end - step);
    walk.run(item, place, last);
    step += last - place;
  }
}

__device__ __forceinline__ void choose_row(const ExpertArgs& a, Choice& choice) {
  if (a.experts <= 256)
    return choose_by_warp<8>(a.logits, a.experts, a.top_k, a.renormalize, choice);
  choose_by_warp<kRouteExpertsMax / 32>(a.logits, a.experts, a.top_k, a.renormalize, choice);
}

struct RowShared {
  TileSums sums[2][kHeldWarps];
  uint4 x[kHeldWarps * 32];  // of each warp's slice, as RowNorm makes it
  float pieces[kHeldColumnsMax / 128];
  Choice choice;
};

/// gate_up of a single row: 8 rows of gate and the same 8 of up at a time.
template <Format kFormat>
class RowTiles {
 public:
  __device__ __forceinline__ RowTiles(const Plan& plan, RowShared& shared)
      : a_(plan.args), slices_(plan.slices), per_step_(plan.per_step), shared_(shared) {
    const int warp = threadIdx.x / 32;
    local_ = warp / slices_;
    slice_ = warp - local_ * slices_;
  }
  __device__ __forceinline__ int slice() const { return slice_; }

  /// The tiles of step `step` of an expert (-1: the shared one) to row `out` of act.
  __device__ __forceinline__ void run(int expert, int step, int tiles, int64_t out) {
    const int tile = step * per_step_ + local_;
    RawSlice<load_count(kFormat)> raw;
    float acc[1][4] = {};
    constexpr float kNone[2] = {1.0F, 1.0F};
    const bool works = local_ < per_step_ && tile < tiles;
    if (works)
      load_tile<kFormat>(tile_at<ExpertPart::gate_up, kFormat>(a_, expert, tile), slice_, raw);
    const Factors factors = factors_of(expert, step, tiles);
    if (works)
      multiply_held<kFormat, false, true>(raw, shared_.x + threadIdx.x / 32 * 32, kNone, acc);
    store_sums(&shared_.sums[turn_][threadIdx.x / 32], acc);
    __syncthreads();
#pragma unroll 1
    for (int o = threadIdx.x; o < per_step_ * 128; o += kThreads) {
      const int of = step * per_step_ + (o >> 7);
      const int place = o & 127;
      const float total = add_parts(&shared_.sums[turn_][(o >> 7) * slices_], slices_, 1, place);
      const float up = __shfl_xor_sync(kAllLanes, total, 2);
      if (of >= tiles || (o & 2) != 0 || tile_token(place) != 0) continue;
      const int n = 8 * of + (place >> 4);
      const Factors f = o < kThreads ? factors : factors_at(expert, n);
      a_.act[out * a_.act_stride + x_place(n)] = to_bf16(silu(total * f.low) * (up * f.high));
    }
    turn_ ^= 1;
  }

 private:
  struct Factors {
    float low, high;
  };
  __device__ __forceinline__ Factors factors_at(int expert, int n) const {
    return {factor_of(low_of(a_, expert), expert, n), factor_of(high_of(a_, expert), expert, n)};
  }
  /// Those of this thread's first output, on their way under the product.
  __device__ __forceinline__ Factors factors_of(int expert, int step, int tiles) const {
    const int o = threadIdx.x;
    const int n = 8 * min(step * per_step_ + (o >> 7), tiles - 1) + ((o & 127) >> 4);
    return factors_at(expert, n);
  }

  const ExpertArgs& a_;
  int slices_, per_step_, local_, slice_;
  RowShared& shared_;
  int turn_ = 0;
};

/// gate_up of a single row: norm and choice by every block; the first also tells the kernels
/// behind. What the kernel before leaves is its logits alone: h was complete when that one let this
/// one start, so the norm and the shared expert come before the wait.
template <Format kFormat>
__global__ void __launch_bounds__(kThreads, kRowBlocks)
    row_gate_up_kernel(const __grid_constant__ Plan plan) {
  __shared__ RowShared shared;
  touch(plan);
  const ExpertArgs& a = plan.args;
  RowTiles<kFormat> tiles(plan, shared);
  RowNorm<kFormat, 1>(a.norm, tiles.slice(), 0, plan.slices)
      .run(shared.pieces, shared.x + threadIdx.x / 32 * 32);
  for (int step = blockIdx.x; step < plan.shared_steps; step += gridDim.x)
    tiles.run(-1, step, plan.shared_tiles, a.shared_begin);
  wait_for_inputs();
  if (threadIdx.x < 32) {
    choose_row(a, shared.choice);
    __syncwarp();
    if (blockIdx.x == 0) {
      if (threadIdx.x < a.top_k) {
        a.routing.experts[threadIdx.x] = shared.choice.experts[threadIdx.x];
        a.routing.weights[threadIdx.x] = shared.choice.weights[threadIdx.x];
      }
      if (threadIdx.x == 0) {
        *a.routing.active_count = a.top_k;
        *a.routing.active_sum += a.top_k;
      }
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int step = blockIdx.x; step < a.top_k * plan.routed_steps; step += gridDim.x) {
    const int rank = step / plan.routed_steps;
    tiles.run(shared.choice.experts[rank], step - rank * plan.routed_steps, plan.routed_tiles,
              rank);
  }
}

constexpr int kSumWarpsMax = 32;
constexpr int kSumStaticBytes =
    kSumWarpsMax * (static_cast<int>(sizeof(TileSums)) + 8 + 4 * kRowTile) +
    static_cast<int>(sizeof(Choice));
constexpr int sum_bytes(int warps) { return held_words(Format::nvfp4, warps, 1) * 2; }

/// Block: 16 columns of the residual stream; warp (rank, slice), the shared expert last. The kernel
/// before leaves act alone: choice, weights and h come before the wait.
template <Format kFormat>
__global__ void __launch_bounds__(kSumWarpsMax * 32)
    down_sum_kernel(const __grid_constant__ Plan plan) {
  __shared__ TileSums sums[kSumWarpsMax];
  __shared__ float weights[kSumWarpsMax];
  __shared__ float factors[kSumWarpsMax];  // of a whole matrix
  __shared__ float parts[kSumWarpsMax][kRowTile];
  __shared__ Choice choice;
  extern __shared__ __align__(128) uint8_t memory[];
  touch(plan);
  const ExpertArgs& a = plan.args;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int rank = warp / plan.slices;
  const int slice = warp - rank * plan.slices;
  const bool shared = rank == a.top_k;
  const int tile = blockIdx.x;
  RawSlice<load_count(kFormat)> raw;
  if (shared) load_tile<kFormat>(tile_at<ExpertPart::down, kFormat>(a, -1, tile), slice, raw);
  if (warp == 0) choose_row(a, choice);
  const bool writes =
      threadIdx.x < kRowTile && kRowTile * tile + static_cast<int>(threadIdx.x) < a.routed_low.rows;
  const float h = writes ? a.h[kRowTile * tile + threadIdx.x] : 0.0F;
  __syncthreads();
  const int expert = shared ? -1 : choice.experts[rank];
  if (!shared) load_tile<kFormat>(tile_at<ExpertPart::down, kFormat>(a, expert, tile), slice, raw);
  if (slice == 0 && lane == 0) {
    weights[rank] = shared ? sigmoid(*a.shared_gate) : choice.weights[rank];
    factors[rank] = factor_of(low_of(a, expert), expert, 0);
  }
  wait_for_inputs();
  // Every lane group of four holds the same token.
  uint4* x = reinterpret_cast<uint4*>(memory) + warp * (unit_count(kFormat) * 4);
  const uint16_t* from = a.act + (shared ? a.shared_begin : rank) * a.act_stride;
  static_assert(unit_count(kFormat) * 4 == 32);
  x[lane] = pair_inputs<kFormat>(*reinterpret_cast<const uint4*>(
      from + slice * slice_columns(kFormat) + fragment_column<kFormat>(lane / 4, lane % 4)));
  __syncwarp();
  float acc[1][4];
  constexpr float kNone[2] = {1.0F, 1.0F};
  multiply_held<kFormat, false, true>(raw, x, kNone, acc);
  store_sums(&sums[warp], acc);
  __syncthreads();
  // One thread for each rank and column, then one for each column.
  const int k = threadIdx.x / kRowTile;
  const int column = threadIdx.x % kRowTile;
  const int n = kRowTile * tile + column;
  const int ranks = a.top_k + (plan.shared_tiles > 0 ? 1 : 0);
  if (k < ranks) {
    const bool of_shared = k == a.top_k;
    const DeviceLinear& w = low_of(a, of_shared ? -1 : 0);
    float factor = factors[k];
    if (w.layout == FactorLayout::row && n < w.rows)
      factor = factor_of(w, of_shared ? -1 : choice.experts[k], n);
    const float total = add_parts(&sums[k * plan.slices], plan.slices, 1, tile_place(column));
    parts[k][column] = __fmul_rn(total, factor);
  }
  __syncthreads();
  if (!writes) return;
  float sum = 0.0F;
#pragma unroll 9
  for (int r = 0; r < ranks; ++r) sum = fmaf(weights[r], parts[r][column], sum);
  a.h[n] = __fadd_rn(h, sum);
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

Plan plan_of(ExpertPart part, const ExpertArgs& args) {
  const int rows = part == ExpertPart::gate_up ? 8 : kRowTile;
  const DeviceLinear& w = args.routed_low.present() ? args.routed_low : args.shared_low;
  Plan plan{.args = args, .slices = w.cols / slice_columns(w.format)};
  plan.per_step_log = std::bit_width(static_cast<unsigned>(kHeldWarps / plan.slices)) - 1;
  plan.per_step = 1 << plan.per_step_log;
  if (args.routed_low.present()) plan.routed_tiles = ceil_div(args.routed_low.rows, rows);
  if (args.shared_low.present()) plan.shared_tiles = ceil_div(args.shared_low.rows, rows);
  plan.routed_steps = ceil_div(plan.routed_tiles, plan.per_step);
  plan.shared_steps = ceil_div(plan.shared_tiles, plan.per_step);
  return plan;
}

template <ExpertPart kPart, Format kFormat>
void launch_part(const ExpertArgs& args, const Launcher& launcher) {
  const auto kernel = held_experts_kernel<kPart, kFormat>;
  const Plan plan = plan_of(kPart, args);
  static const bool prepared = [&] {
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    shared_bytes(kHeldWarps)));
    return true;
  }();
  CHECK(prepared, "shared memory of the experts");
  const int bytes = shared_bytes(plan.slices);
  int blocks_each = 1;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, kernel, kThreads,
                                                           static_cast<size_t>(bytes)));
  const int64_t steps = int64_t{plan.shared_steps} * ceil_div(args.rows, kTokenTile) +
                        int64_t{plan.routed_steps} * args.rows * args.top_k;
  const auto blocks = min(steps, int64_t{max(blocks_each, 1)} * launcher.multiprocessors);
  launch(kernel, launcher, static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(bytes),
         plan);
}

template <Format kFormat>
void launch_row_gate_up(const ExpertArgs& args, const Launcher& launcher) {
  const Plan plan = plan_of(ExpertPart::gate_up, args);
  const int steps = max(plan.shared_steps, args.top_k * plan.routed_steps);
  launch(row_gate_up_kernel<kFormat>, launcher,
         static_cast<unsigned>(min(steps, kRowBlocks * launcher.multiprocessors)), kThreads, 0,
         plan);
}

bool suits(const DeviceLinear& w) {
  return w.rows % kRowTile == 0 && w.format != Format::bf16 && w.layout != FactorLayout::block128 &&
         w.cols / slice_columns(w.format) <= kHeldWarps;
}

}  // namespace

bool experts_held(const ExpertArgs& args) {
  const DeviceLinear& routed = args.routed_low;
  const DeviceLinear& shared = args.shared_low;
  for (const DeviceLinear* w : {&routed, &args.routed_high, &shared, &args.shared_high})
    if (w->present() && !suits(*w)) return false;
  return !routed.present() || !shared.present() ||
         (routed.format == shared.format && routed.cols == shared.cols);
}

bool experts_take_a_row(const ExpertArgs& gate_up, const ExpertArgs& down,
                        const Launcher& launcher) {
  if (!gate_up.routed_low.present() || !experts_held(gate_up) || !experts_held(down)) return false;
  const int slices = down.routed_low.cols / slice_columns(down.routed_low.format);
  const int warps = slices * (down.top_k + (down.shared_low.present() ? 1 : 0));
  return warps <= kSumWarpsMax && sum_bytes(warps) + kSumStaticBytes <= shared_limit(launcher) &&
         down.routed_low.rows % 4 == 0 && gate_up.routed_low.cols <= kHeldColumnsMax;
}

void launch_experts_held(ExpertPart part, const ExpertArgs& args, const Launcher& launcher) {
  const bool nvfp4 =
      (args.routed_low.present() ? args.routed_low : args.shared_low).format == Format::nvfp4;
  if (args.norm.h != nullptr)
    return nvfp4 ? launch_row_gate_up<Format::nvfp4>(args, launcher)
                 : launch_row_gate_up<Format::fp8>(args, launcher);
  if (part == ExpertPart::gate_up)
    return nvfp4 ? launch_part<ExpertPart::gate_up, Format::nvfp4>(args, launcher)
                 : launch_part<ExpertPart::gate_up, Format::fp8>(args, launcher);
  nvfp4 ? launch_part<ExpertPart::down, Format::nvfp4>(args, launcher)
        : launch_part<ExpertPart::down, Format::fp8>(args, launcher);
}

void launch_down_sum(const ExpertArgs& args, const Launcher& launcher) {
  const Plan plan = plan_of(ExpertPart::down, args);
  const int warps = (args.top_k + (args.shared_low.present() ? 1 : 0)) * plan.slices;
  const bool nvfp4 = args.routed_low.format == Format::nvfp4;
  const auto kernel = nvfp4 ? down_sum_kernel<Format::nvfp4> : down_sum_kernel<Format::fp8>;
  static_assert(unit_count(Format::nvfp4) == unit_count(Format::fp8));
  const int bytes = sum_bytes(warps);
  static const bool prepared = [] {
    const int most = min(sum_bytes(kSumWarpsMax), shared_limit({}) - kSumStaticBytes);
    for (const auto each : {down_sum_kernel<Format::nvfp4>, down_sum_kernel<Format::fp8>})
      CUDA_CHECK(cudaFuncSetAttribute(each, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    return true;
  }();
  CHECK(prepared, "shared memory of the experts");
  launch(kernel, launcher, static_cast<unsigned>(plan.routed_tiles),
         static_cast<unsigned>(32 * warps), static_cast<size_t>(bytes), plan);
}

}  // namespace nibble::cuda
