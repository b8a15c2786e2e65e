// Experts in generation arithmetic with the inputs held in shared memory. A block walks
// neighbouring tiles of neighbouring experts; an item is one expert with up to 8 of its tokens.
// gate_up: a tile is 8 rows of gate and the same 8 of up. A single row goes without kernels
// between: gate_up norms it and chooses its experts, down_sum adds what they return to the residual
// stream. Bound: the bytes of the experts that have tokens, each read once (for every 8 of its
// tokens).
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
constexpr int kRing = 1;  // slices of weights on their way; tiles between two barriers

struct alignas(16) Shared {
  TileSums sums[2][kRing][kHeldWarps];
  HeldRow row;
  Choice choice;
  int rows[kTokenTile];  // output rows of the tokens of an item
};
constexpr int shared_bytes(int slices) {
  return static_cast<int>(sizeof(Shared)) + held_words(Format::nvfp4, slices, 1) * 16;
}
/// Blocks of a multiprocessor: as many as registers hold.
constexpr int blocks_wanted(ExpertPart part) { return part == ExpertPart::gate_up ? 3 : 4; }

/// Item of a step, and the step's place in it.
__device__ __forceinline__ Item item_of(const Plan& plan, const Choice& choice, int step,
                                        int& place) {
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
  if (a.norm.h != nullptr) {
    item.expert = choice.experts[index];
    item.first = index;
    item.count = 1;
  } else {
    const int4 packed = a.routing.items[index];
    item.expert = packed.x;
    item.first = packed.y;
    item.count = packed.z;
  }
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
    Raw raw[kRing];
#pragma unroll
    for (int r = 0; r < kRing; ++r) load_next(begin + r, raw[r]);
    take_inputs();
    const DeviceLinear& low = low_of(a_, item.expert);
    low_factor_ = factor_of(low, item.expert, 0);
    if (kPart == ExpertPart::gate_up)
      high_factor_ = factor_of(high_of(a_, item.expert), item.expert, 0);
#pragma unroll 1
    for (int step = begin; step < end; step += kRing) {
#pragma unroll
      for (int r = 0; r < kRing; ++r) {
        float acc[1][4] = {};
        constexpr float kNone[2] = {1.0F, 1.0F};
        if (works(step + r))
          multiply_held<kFormat, false>(raw[r], x_ + slice_ * (unit_count(kFormat) * 32), kNone,
                                        acc);
        load_next(step + r + kRing, raw[r]);
        store_sums(&shared_.sums[turn_][r][threadIdx.x / 32], acc);
      }
      __syncthreads();
#pragma unroll 1
      for (int o = threadIdx.x; o < kRing * plan_.per_step * 128; o += kThreads) write(step, o);
      turn_ ^= 1;
    }
  }

 private:
  __device__ __forceinline__ int64_t output_row(int token) const {
    if (item_.expert < 0) return a_.shared_begin + item_.first + token;
    return a_.norm.h != nullptr ? item_.first : a_.routing.assignments[item_.first + token];
  }
  /// Inputs of the item's tokens into shared memory, behind whoever reads the item before.
  __device__ __forceinline__ void take_inputs() {
    __syncthreads();
    if (threadIdx.x < kTokenTile)
      shared_.rows[threadIdx.x] =
          static_cast<int>(output_row(min(static_cast<int>(threadIdx.x), item_.count - 1)));
    hold<kFormat, 1>(
        [&](int index) -> const uint16_t* {
          if (kPart == ExpertPart::gate_up && a_.norm.h != nullptr) return shared_.row.x;
          const int token = min(index, item_.count - 1);
          const int64_t out = output_row(token);
          if (kPart == ExpertPart::down) return a_.act + out * a_.act_stride;
          return a_.x + (item_.expert < 0 ? item_.first + token : out / a_.top_k) * a_.x_stride;
        },
        plan_.slices, x_);
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
  __device__ __forceinline__ void write(int step, int o) const {
    const int outputs = plan_.per_step * 128;
    const int r = kRing == 1 || o < outputs ? 0 : 1;  // the ring holds two at most
    const int local = (o - r * outputs) >> 7;
    const int tile = (step + r) * plan_.per_step + local;
    const int place = o & 127;
    const int token = tile_token(place);
    const float total =
        add_parts(&shared_.sums[turn_][r][local * plan_.slices], plan_.slices, 1, place);
    const bool writes = token < item_.count && step + r < end_ && tile < item_.tiles;
    const DeviceLinear& w = low_of(a_, item_.expert);
    if constexpr (kPart == ExpertPart::gate_up) {
      const float up = __shfl_xor_sync(kAllLanes, total, 2);
      const int n = 8 * tile + (place >> 4);
      if (!writes || (o & 2) != 0) return;
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

/// A single row: its norm and its experts, by every block; the first also tells the kernels behind.
__device__ __forceinline__ void take_row(const Plan& plan, Shared& shared) {
  const ExpertArgs& a = plan.args;
  if (threadIdx.x < 32 && plan.routed_steps > 0) {
    if (a.experts <= 256) {
      choose_by_warp<8>(a.logits, a.experts, a.top_k, a.renormalize, shared.choice);
    } else {
      choose_by_warp<kRouteExpertsMax / 32>(a.logits, a.experts, a.top_k, a.renormalize,
                                            shared.choice);
    }
    if (blockIdx.x == 0) {
      __syncwarp();
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
  hold_norm<kHeldWarps>(a.norm, plan.slices * 256, shared.row);
}

template <ExpertPart kPart, Format kFormat>
__global__ void __launch_bounds__(kThreads, blocks_wanted(kPart))
    held_experts_kernel(const __grid_constant__ Plan plan) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  uint4* x = reinterpret_cast<uint4*>(&shared + 1);
  const ExpertArgs& a = plan.args;
  wait_for_inputs();
  const bool alone = kPart == ExpertPart::gate_up && a.norm.h != nullptr;
  if (alone) take_row(plan, shared);
  const int items = plan.routed_steps == 0 ? 0 : alone ? a.top_k : *a.routing.item_count;
  const int steps =
      plan.shared_steps * ((a.rows + kTokenTile - 1) / kTokenTile) + items * plan.routed_steps;
  const int blocks = gridDim.x;
  int step = static_cast<int>(static_cast<int64_t>(steps) * blockIdx.x / blocks);
  const int end = static_cast<int>(static_cast<int64_t>(steps) * (blockIdx.x + 1) / blocks);
  Walk<kPart, kFormat> walk(plan, shared, x);
  while (step < end) {
    int place = 0;
    const Item item = item_of(plan, shared.choice, step, place);
    const int last = min(item.steps, place + end - step);
    walk.run(item, place, last);
    step += last - place;
  }
}

constexpr int kSumWarpsMax = 32;
constexpr int kSumStaticBytes = kSumWarpsMax * (static_cast<int>(sizeof(TileSums)) + 8);
constexpr int sum_bytes(int warps) { return held_words(Format::nvfp4, warps, 1) * 16; }

/// Block: 16 columns of the residual stream; warp (rank, slice), the shared expert last.
template <Format kFormat>
__global__ void __launch_bounds__(kSumWarpsMax * 32)
    down_sum_kernel(const __grid_constant__ Plan plan) {
  __shared__ TileSums sums[kSumWarpsMax];
  __shared__ float weights[kSumWarpsMax];
  __shared__ float factors[kSumWarpsMax];  // of a whole matrix
  extern __shared__ __align__(128) uint8_t memory[];
  const ExpertArgs& a = plan.args;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int rank = warp / plan.slices;
  const int slice = warp % plan.slices;
  const bool shared = rank == a.top_k;
  const int tile = blockIdx.x;
  const int n = kRowTile * tile + tile_row(threadIdx.x % 128);
  RawSlice<load_count(kFormat)> raw;
  if (shared) load_tile<kFormat>(tile_at<ExpertPart::down, kFormat>(a, -1, tile), slice, raw);
  wait_for_inputs();
  const int expert = shared ? -1 : a.routing.experts[rank];
  if (!shared) load_tile<kFormat>(tile_at<ExpertPart::down, kFormat>(a, expert, tile), slice, raw);
  const bool writes = threadIdx.x < 128 && tile_token(threadIdx.x) == 0 && n < a.routed_low.rows;
  const float h = writes ? a.h[n] : 0.0F;
  // Every lane group of four holds the same token.
  uint4* x = reinterpret_cast<uint4*>(memory) + warp * (unit_count(kFormat) * 32);
  const uint16_t* from = a.act + (shared ? a.shared_begin : rank) * a.act_stride;
#pragma unroll
  for (int unit = 0; unit < unit_count(kFormat); ++unit)
    x[unit * 32 + lane] = pair_inputs<kFormat>(*reinterpret_cast<const uint4*>(
        from + slice * slice_columns(kFormat) + unit_column<kFormat>(unit)));
  if (slice == 0 && lane == 0) {
    weights[rank] = shared ? sigmoid(*a.shared_gate) : a.routing.weights[rank];
    factors[rank] = factor_of(low_of(a, expert), expert, 0);
  }
  __syncwarp();
  float acc[1][4];
  constexpr float kNone[2] = {1.0F, 1.0F};
  multiply_held<kFormat, false>(raw, x, kNone, acc);
  store_sums(&sums[warp], acc);
  __syncthreads();
  if (!writes) return;
  float sum = 0.0F;
#pragma unroll 9
  for (int k = 0; k < blockDim.x / 32 / plan.slices; ++k) {
    const DeviceLinear& w = low_of(a, k < a.top_k ? 0 : -1);
    float factor = factors[k];
    if (w.layout == FactorLayout::row)
      factor = factor_of(w, k < a.top_k ? a.routing.experts[k] : -1, n);
    const float total = add_parts(&sums[k * plan.slices], plan.slices, 1, threadIdx.x);
    sum = fmaf(weights[k], __fmul_rn(total, factor), sum);
  }
  a.h[n] = __fadd_rn(h, sum);
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

Plan plan_of(ExpertPart part, const ExpertArgs& args) {
  const int rows = part == ExpertPart::gate_up ? 8 : kRowTile;
  const DeviceLinear& w = args.routed_low.present() ? args.routed_low : args.shared_low;
  Plan plan{.args = args, .slices = w.cols / slice_columns(w.format)};
  plan.per_step = kHeldWarps / plan.slices;
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
