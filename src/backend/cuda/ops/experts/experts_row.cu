// The experts of a single row without kernels between: gate_up norms it and chooses its experts,
// down_sum adds what they return to the residual stream. The products are those of
// experts_resident.cu, bit for bit.
#include "backend/cuda/ops/experts/experts_resident.cuh"
#include "backend/cuda/ops/route/choose.cuh"

namespace nibble::cuda {
namespace {

constexpr int kRowBlocks = 4;  // thread blocks that share an SM

__device__ __forceinline__ int lane_group() { return static_cast<int>(threadIdx.x % 32) / 4; }

__device__ __forceinline__ ChosenKeys choose_row(const ExpertArgs& a, int* chosen) {
  if (a.experts <= 256) return choose_by_warp<8>(a.logits, a.experts, a.top_k, chosen);
  return choose_by_warp<kRouteExpertsMax / 32>(a.logits, a.experts, a.top_k, chosen);
}

/// Tells the kernels that follow which experts were chosen; one warp does it.
__device__ __forceinline__ void announce(const ExpertArgs& a, const int* chosen,
                                         const ChosenKeys& keys) {
  const int lane = threadIdx.x % 32;
  const int expert = lane < a.top_k ? chosen[lane] : 0;
  if (lane < a.top_k) {
    __stcg(&a.routing.announced[lane], expert + 1);
    a.routing.experts[lane] = expert;
  }
  const float weight = weigh_by_warp(a.logits, a.experts, a.top_k, a.renormalize, keys);
  if (lane < a.top_k) a.routing.weights[lane] = weight;
  if (lane == 0) {
    *a.routing.active_count = a.top_k;
    *a.routing.active_sum += a.top_k;
  }
}

struct RowShared {
  TileSums sums[2][kResidentWarps];
  uint4 x[kResidentWarps * 32];  // the slice of each warp, as RowNorm makes it
  float squares[kResidentColumnsMax / 128];
  int chosen[kRouteTopKMax];
};

/// Computes gate_up of a single row, 8 rows of gate and the same 8 of up at a time.
template <Format kFormat>
class RowTiles {
 public:
  __device__ __forceinline__ RowTiles(const ExpertPlan& plan, RowShared& shared)
      : a_(plan.args), slices_(plan.slices), per_step_(plan.per_step), shared_(shared) {
    const int warp = threadIdx.x / 32;
    local_ = warp / slices_;
    slice_ = warp - local_ * slices_;
  }
  __device__ __forceinline__ int slice() const { return slice_; }

  /// Writes the tiles of step `step` of an expert (-1: the shared one) to row `out` of act.
  __device__ __forceinline__ void run(int expert, int step, int tiles, int64_t out) {
    const int tile = step * per_step_ + local_;
    RawSlice<load_count(kFormat)> raw;
    float acc[1][4] = {};
    constexpr float kNone[2] = {1.0F, 1.0F};
    const bool works = local_ < per_step_ && tile < tiles;
    if (works)
      load_tile<kFormat>(tile_at<ExpertPart::gate_up, kFormat>(a_, expert, tile, lane_group()),
                         slice_, raw);
    const Factors factors = factors_of(expert, step, tiles);
    if (works)
      multiply_resident<kFormat, false, true>(raw, shared_.x + threadIdx.x / 32 * 32, kNone, acc);
    store_sums(&shared_.sums[buffer_][threadIdx.x / 32], acc);
    __syncthreads();
#pragma unroll 1
    for (int o = threadIdx.x; o < per_step_ * 128; o += kExpertThreads) {
      const int of = step * per_step_ + (o >> 7);
      const int place = o & 127;
      const float total = add_parts(&shared_.sums[buffer_][(o >> 7) * slices_], slices_, 1, place);
      const float up = __shfl_xor_sync(kAllLanes, total, 2);
      if (of >= tiles || (o & 2) != 0 || tile_token(place) != 0) continue;
      const int n = 8 * of + (place >> 4);
      const Factors f = o < kExpertThreads ? factors : factors_at(expert, n);
      a_.act[out * a_.act_stride + x_place(n)] = to_bf16(silu(total * f.low) * (up * f.high));
    }
    buffer_ ^= 1;
  }

 private:
  struct Factors {
    float low, high;
  };
  __device__ __forceinline__ Factors factors_at(int expert, int n) const {
    return {factor_of(low_of(a_, expert), expert, n), factor_of(high_of(a_, expert), expert, n)};
  }
  /// The factors of this thread's first output, loaded while the product is computed.
  __device__ __forceinline__ Factors factors_of(int expert, int step, int tiles) const {
    const int o = threadIdx.x;
    const int n = 8 * min(step * per_step_ + (o >> 7), tiles - 1) + ((o & 127) >> 4);
    return factors_at(expert, n);
  }

  const ExpertArgs& a_;
  int slices_, per_step_, local_, slice_;
  RowShared& shared_;
  int buffer_ = 0;
};

/// Computes gate_up of a single row. Every block norms the row and chooses its experts; the last
/// block, which has no routed tile if there is room, also tells the kernels that follow. Only the
/// logits come from the kernel before: h was complete when that kernel let this one start, so the
/// norm and the shared expert precede the wait.
template <Format kFormat>
__global__ void __launch_bounds__(kExpertThreads, kRowBlocks)
    row_gate_up_kernel(const __grid_constant__ ExpertPlan plan) {
  __shared__ RowShared shared;
  touch(plan);
  const ExpertArgs& a = plan.args;
  // No kernel reads the choices of the last layer any more: down starts after the wait of every
  // block.
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x < a.top_k) {
    __stcg(&a.routing.announced[threadIdx.x], 0);
    __threadfence();
  }
  RowTiles<kFormat> tiles(plan, shared);
  RowNorm<kFormat, 1>(a.norm, tiles.slice(), 0, plan.slices)
      .run(shared.squares, shared.x + threadIdx.x / 32 * 32);
  for (int step = blockIdx.x; step < plan.shared_steps; step += gridDim.x)
    tiles.run(-1, step, plan.shared_tiles, a.shared_begin);
  wait_for_inputs();
  // Blocks that share an SM are about that far apart, so each chooses on another warp scheduler.
  if (static_cast<int>(threadIdx.x) / 32 == 4 * blockIdx.x / gridDim.x) {
    const ChosenKeys keys = choose_row(a, shared.chosen);
    __syncwarp();
    if (blockIdx.x == gridDim.x - 1) announce(a, shared.chosen, keys);
  }
  __syncthreads();
#pragma unroll 1
  for (int step = blockIdx.x; step < a.top_k * plan.routed_steps; step += gridDim.x) {
    const int rank = step / plan.routed_steps;
    tiles.run(shared.chosen[rank], step - rank * plan.routed_steps, plan.routed_tiles, rank);
  }
}

static_assert(sizeof(TileSums) == kTileSumBytes);

/// A block computes 16 columns of the residual stream; warp (rank, slice) has the shared expert
/// last. h is read before the wait, and so are the weights of experts that gate_up has announced by
/// then.
template <Format kFormat>
__global__ void __launch_bounds__(kSumWarpsMax * 32)
    down_sum_kernel(const __grid_constant__ ExpertPlan plan) {
  __shared__ TileSums sums[kSumWarpsMax];
  __shared__ float weights[kSumWarpsMax];
  __shared__ float factors[kSumWarpsMax];  // one for each whole matrix
  __shared__ float parts[kSumWarpsMax][kRowTile];
  __shared__ int experts[kSumWarpsMax];
  extern __shared__ __align__(128) uint8_t memory[];
  touch(plan);
  const ExpertArgs& a = plan.args;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int rank = warp / plan.slices;
  const int slice = warp - rank * plan.slices;
  const bool shared = rank == a.top_k;
  const int tile = blockIdx.x;
  int expert = -1;
  if (!shared) expert = __ldcg(&a.routing.announced[rank]) - 1;
  const bool known = shared || (expert >= 0 && expert < a.experts);
  if (!known) {
    wait_for_inputs();
    expert = a.routing.experts[rank];
  }
  RawSlice<load_count(kFormat)> raw;
  load_tile<kFormat>(tile_at<ExpertPart::down, kFormat>(a, expert, tile, lane_group()), slice, raw);
  const bool writes =
      threadIdx.x < kRowTile && kRowTile * tile + static_cast<int>(threadIdx.x) < a.routed_low.rows;
  const float h = writes ? a.h[kRowTile * tile + threadIdx.x] : 0.0F;
  const bool tells = slice == 0 && lane == 0;
  const float factor = tells ? factor_of(low_of(a, expert), expert, 0) : 0.0F;
  if (known) wait_for_inputs();
  const float weight = !tells ? 0.0F : shared ? sigmoid(*a.shared_gate) : a.routing.weights[rank];
  // Every lane group of four holds the same token.
  uint4* x = reinterpret_cast<uint4*>(memory) + warp * (unit_count(kFormat) * 4);
  const uint16_t* from = a.act + (shared ? a.shared_begin : rank) * a.act_stride;
  static_assert(unit_count(kFormat) * 4 == 32);
  x[lane] = pair_inputs<kFormat>(*reinterpret_cast<const uint4*>(
      from + slice * slice_columns(kFormat) + fragment_column<kFormat>(lane / 4, lane % 4)));
  __syncwarp();
  float acc[1][4];
  constexpr float kNone[2] = {1.0F, 1.0F};
  multiply_resident<kFormat, false, true>(raw, x, kNone, acc);
  store_sums(&sums[warp], acc);
  if (tells) {
    weights[rank] = weight;
    factors[rank] = factor;
    experts[rank] = expert;
  }
  __syncthreads();
  // First each rank and column has a thread, then each column.
  const int k = threadIdx.x / kRowTile;
  const int column = threadIdx.x % kRowTile;
  const int n = kRowTile * tile + column;
  const int ranks = a.top_k + (plan.shared_tiles > 0 ? 1 : 0);
  if (k < ranks) {
    const DeviceLinear& w = low_of(a, experts[k]);
    float factor = factors[k];
    if (w.layout == FactorLayout::row && n < w.rows) factor = factor_of(w, experts[k], n);
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

}  // namespace

void launch_row_gate_up(const ExpertArgs& args, const Launcher& launcher) {
  const ExpertPlan plan = plan_of(ExpertPart::gate_up, args);
  const int steps = max(plan.shared_steps, args.top_k * plan.routed_steps) + 1;
  const bool nvfp4 = args.routed_low.format == Format::nvfp4;
  launch(nvfp4 ? row_gate_up_kernel<Format::nvfp4> : row_gate_up_kernel<Format::fp8>, launcher,
         static_cast<unsigned>(min(steps, kRowBlocks * launcher.card.multiprocessors)),
         kExpertThreads, 0, plan);
}

void launch_down_sum(const ExpertArgs& args, const Launcher& launcher) {
  const ExpertPlan plan = plan_of(ExpertPart::down, args);
  const int warps = (args.top_k + (args.shared_low.present() ? 1 : 0)) * plan.slices;
  const bool nvfp4 = args.routed_low.format == Format::nvfp4;
  const auto kernel = nvfp4 ? down_sum_kernel<Format::nvfp4> : down_sum_kernel<Format::fp8>;
  static_assert(unit_count(Format::nvfp4) == unit_count(Format::fp8));
  const int bytes = sum_bytes(warps);
  launcher.device->allow_shared(
      kernel,
      min(sum_bytes(kSumWarpsMax), launcher.device->facts().shared_bytes - kSumStaticBytes));
  launch(kernel, launcher, static_cast<unsigned>(plan.routed_tiles),
         static_cast<unsigned>(32 * warps), static_cast<size_t>(bytes), plan);
}

}  // namespace nibble::cuda
