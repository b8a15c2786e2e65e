// The feed-forward of chosen experts and of the shared expert (or of a dense MLP) in generation
// arithmetic. A block of 8 warps takes tiles of 16 rows of one expert's matrix and all tokens of
// that expert, 8 at a time; sums are made as in linear.cu. Bound: the bytes of the experts that
// have tokens, each read once.
#include "backend/cuda/launch.cuh"
#include "backend/cuda/warp_matrix.cuh"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kTokens = 8;  // of one matrix instruction

/// gate_up: a tile is 8 rows of gate and the same 8 of up. down: 16 rows.
enum class Step : uint8_t { gate_up, down };

struct Plan {
  ExpertArgs args;
  int32_t routed_tiles = 0;  // of one expert; 0: none
  int32_t shared_tiles = 0;
  int32_t slices = 0;
  int32_t warps_per_tile = 0;
};

/// One tile of one expert, or of the shared matrix (expert -1).
struct Item {
  int expert = -1;
  int tile = 0;
  int first = 0;  // of its assignments; shared: row 0
  int count = 0;  // tokens
};

template <Step kStep>
__device__ __forceinline__ Item item_at(const Plan& plan, int flat, int active) {
  Item item;
  const ExpertArgs& a = plan.args;
  if (flat < plan.shared_tiles) {
    item.tile = flat;
    item.count = a.rows;
    return item;
  }
  const int place = (flat - plan.shared_tiles) / max(plan.routed_tiles, 1);
  if (plan.routed_tiles == 0 || place >= active) return item;
  item.expert = a.routing.active[place];
  item.tile = (flat - plan.shared_tiles) % plan.routed_tiles;
  item.first = a.routing.begin[place];
  item.count = a.routing.begin[place + 1] - item.first;
  return item;
}

__device__ __forceinline__ const DeviceLinear& low_of(const ExpertArgs& a, const Item& item) {
  return item.expert < 0 ? a.shared_low : a.routed_low;
}
__device__ __forceinline__ const DeviceLinear& high_of(const ExpertArgs& a, const Item& item) {
  return item.expert < 0 ? a.shared_high : a.routed_high;
}

template <Step kStep>
__device__ __forceinline__ int low_row(const Item& item, int g) {
  return kStep == Step::gate_up ? 8 * item.tile + g : 16 * item.tile + g;
}

template <Step kStep, Format kFormat>
__device__ __forceinline__ void load_item(const Plan& plan, const Item& item, int slice,
                                          RawSlice<load_count(kFormat)>& raw) {
  const DeviceLinear& low = low_of(plan.args, item);
  const DeviceLinear& high = high_of(plan.args, item);
  const int first = low_row<kStep>(item, static_cast<int>(threadIdx.x % 32) / 4);
  const int second = kStep == Step::gate_up ? first : first + 8;
  const int64_t base = static_cast<int64_t>(max(item.expert, 0)) * low.rows;
  load_slice<kFormat>(row_of(low, base + min(first, low.rows - 1)),
                      row_of(high, base + min(second, high.rows - 1)), slice, raw);
}

/// The input row and the output row of token `index` of an item.
template <Step kStep>
__device__ __forceinline__ int64_t output_row(const ExpertArgs& a, const Item& item, int index) {
  if (item.expert < 0) return a.shared_begin + index;
  return a.routing.assignments[item.first + index];
}
template <Step kStep>
__device__ __forceinline__ int64_t input_row(const ExpertArgs& a, const Item& item, int index) {
  const int64_t row = output_row<kStep>(a, item, index);
  if (kStep == Step::down) return row;
  return item.expert < 0 ? index : row / a.top_k;
}

__device__ __forceinline__ float factor_of(const DeviceLinear& w, int expert, int row) {
  const float* f = w.factors + max(expert, 0) * w.factor_stride;
  if (w.layout == FactorLayout::row) return f[row];
  if (w.layout != FactorLayout::scalar) return 1.0F;
  return w.format == Format::nvfp4 ? f[0] * kNvfp4Unscale : f[0];
}

/// Factors of the 128-column halves of a slice. gate_up: gate's in the tile's low rows and up's in
/// its high rows would differ, so block scales are applied to each half of the sums.
template <Step kStep>
__device__ __forceinline__ void block_factors(const DeviceLinear& w, const Item& item, int slice,
                                              float (&factors)[2]) {
  factors[0] = factors[1] = 1.0F;
  if (w.layout != FactorLayout::block128) return;
  const float* f = w.factors + max(item.expert, 0) * w.factor_stride +
                   low_row<kStep>(item, 0) / 128 * (w.cols / 128) + 2 * slice;
  factors[0] = f[0];
  factors[1] = f[1];
}

template <Step kStep, Format kFormat>
__device__ __forceinline__ void multiply_item(const Plan& plan, const Item& item, int slice,
                                              const RawSlice<load_count(kFormat)>& raw,
                                              const uint16_t* x, float (&acc)[1][4]) {
  const uint16_t* const at[1] = {x + slice * kColumnPad};
  float factors[2];
  block_factors<kStep>(low_of(plan.args, item), item, slice, factors);
  if constexpr (kFormat == Format::fp8 && kStep == Step::gate_up) {
    if (low_of(plan.args, item).layout == FactorLayout::block128) {
      float high_factors[2];
      block_factors<kStep>(high_of(plan.args, item), item, slice, high_factors);
      float high[1][4] = {{0.0F, 0.0F, acc[0][2], acc[0][3]}};
      multiply_slice<kFormat>(raw, at, high_factors, high);
      multiply_slice<kFormat>(raw, at, factors, acc);
      acc[0][2] = high[0][2];
      acc[0][3] = high[0][3];
      return;
    }
  }
  multiply_slice<kFormat>(raw, at, factors, acc);
}

using Sums = float[kWarps][kTokens][17];

template <Step kStep>
__device__ __forceinline__ void write_item(const Plan& plan, const Item& item, int group,
                                           const Sums& sums, int first_warp, int token, int row) {
  const ExpertArgs& a = plan.args;
  if (group * kTokens + token >= item.count) return;
  float low = 0.0F;
  float high = 0.0F;
  for (int w = first_warp; w < first_warp + plan.warps_per_tile; ++w) {
    low += sums[w][token][row];
    if (kStep == Step::gate_up) high += sums[w][token][row + 8];
  }
  const int64_t to = output_row<kStep>(a, item, group * kTokens + token);
  const int n = low_row<kStep>(item, row);
  if (n >= low_of(a, item).rows) return;
  low *= factor_of(low_of(a, item), item.expert, n);
  if constexpr (kStep == Step::down) {
    a.y[to * a.y_stride + n] = low;
  } else {
    high *= factor_of(high_of(a, item), item.expert, n);
    a.act[to * a.act_stride + n] = to_bf16(silu(low) * high);
  }
}

template <Step kStep, Format kFormat>
__global__ void __launch_bounds__(kWarps * 32) expert_kernel(const __grid_constant__ Plan plan) {
  constexpr int kRows = kStep == Step::gate_up ? 8 : 16;
  __shared__ Sums sums;
  const ExpertArgs& a = plan.args;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int tiles_per_block = kWarps / plan.warps_per_tile;
  const int local_tile = warp / plan.warps_per_tile;
  const int first_slice = warp % plan.warps_per_tile;
  const bool works = local_tile < tiles_per_block;

  RawSlice<load_count(kFormat)> raw;
  int flat = blockIdx.x * tiles_per_block + local_tile;
  const bool early = works && flat < plan.shared_tiles;
  Item item;
  if (early) {
    item = item_at<kStep>(plan, flat, 0);
    load_item<kStep, kFormat>(plan, item, first_slice, raw);
  }
  wait_for_inputs();
  const int active = plan.routed_tiles == 0 ? 0 : *a.routing.active_count;
  const int tiles = plan.shared_tiles + active * plan.routed_tiles;
  if (works && !early && flat < tiles) {
    item = item_at<kStep>(plan, flat, active);
    load_item<kStep, kFormat>(plan, item, first_slice, raw);
  }
  const uint16_t* input = kStep == Step::gate_up ? a.x : a.act;
  const int64_t stride = kStep == Step::gate_up ? a.x_stride : a.act_stride;

  for (int base = blockIdx.x * tiles_per_block; base < tiles; base += gridDim.x * tiles_per_block) {
    flat = base + local_tile;
    int groups = 0;  // of the tile of this block with the most tokens
    for (int t = 0; t < tiles_per_block; ++t)
      groups = max(groups, (item_at<kStep>(plan, base + t, active).count + kTokens - 1) / kTokens);
    for (int group = 0; group < groups; ++group) {
      float acc[1][4] = {};
      if (works && flat < tiles && group * kTokens < item.count) {
        const int token = min(group * kTokens + lane / 4, item.count - 1);
        const uint16_t* x = input + input_row<kStep>(a, item, token) * stride;
        if (group > 0 && plan.slices > kWarps)
          load_item<kStep, kFormat>(plan, item, first_slice, raw);
        multiply_item<kStep, kFormat>(plan, item, first_slice, raw, x, acc);
        for (int slice = first_slice + kWarps; slice < plan.slices; slice += kWarps) {
          load_item<kStep, kFormat>(plan, item, slice, raw);
          multiply_item<kStep, kFormat>(plan, item, slice, raw, x, acc);
        }
      }
      const int next = flat + gridDim.x * tiles_per_block;
      Item next_item;
      if (works && group == groups - 1 && next < tiles) {
        next_item = item_at<kStep>(plan, next, active);
        load_item<kStep, kFormat>(plan, next_item, first_slice, raw);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[warp][2 * (lane % 4) + i % 2][lane / 4 + i / 2 * 8] = acc[0][i];
      __syncthreads();
      for (int o = threadIdx.x; o < tiles_per_block * kTokens * kRows; o += kWarps * 32) {
        const int t = o / (kTokens * kRows);
        if (base + t < tiles)
          write_item<kStep>(plan, item_at<kStep>(plan, base + t, active), group, sums,
                            t * plan.warps_per_tile, o / kRows % kTokens, o % kRows);
      }
      __syncthreads();
      if (group == groups - 1) item = next_item;
    }
  }
}

template <Step kStep, Format kFormat>
void launch_experts(const Plan& plan, const Launcher& launcher) {
  static const int resident = [] {
    int blocks = 1;
    CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, expert_kernel<kStep, kFormat>,
                                                             kWarps * 32, 0));
    return blocks;
  }();
  const ExpertArgs& a = plan.args;
  const int tiles_per_block = kWarps / plan.warps_per_tile;
  const int active_max = min(a.experts, a.rows * a.top_k);
  const int tiles = plan.shared_tiles + plan.routed_tiles * active_max;
  const int groups = (tiles + tiles_per_block - 1) / tiles_per_block;
  const auto blocks = static_cast<unsigned>(min(groups, resident * launcher.multiprocessors));
  launch(expert_kernel<kStep, kFormat>, launcher, blocks, kWarps * 32, 0, plan);
}

template <Step kStep>
void launch_plan(const Plan& plan, const Launcher& launcher) {
  const DeviceLinear& w =
      plan.args.routed_low.present() ? plan.args.routed_low : plan.args.shared_low;
  switch (w.format) {
    case Format::bf16:
      return launch_experts<kStep, Format::bf16>(plan, launcher);
    case Format::fp8:
      return launch_experts<kStep, Format::fp8>(plan, launcher);
    case Format::nvfp4:
      return launch_experts<kStep, Format::nvfp4>(plan, launcher);
  }
}

bool together(const DeviceLinear& a, const DeviceLinear& b) {
  return a.format == b.format && a.cols == b.cols;
}

template <Step kStep>
void run(const ExpertArgs& args, const Launcher& launcher) {
  const bool routed = args.routed_low.present();
  const bool shared = args.shared_low.present();
  if (routed && shared && !together(args.routed_low, args.shared_low)) {
    ExpertArgs part = args;
    part.shared_low = part.shared_high = {};
    run<kStep>(part, launcher);
    part = args;
    part.routed_low = part.routed_high = {};
    return run<kStep>(part, launcher);
  }
  constexpr int kRows = kStep == Step::gate_up ? 8 : 16;
  Plan plan = {.args = args};
  plan.routed_tiles = routed ? (args.routed_low.rows + kRows - 1) / kRows : 0;
  plan.shared_tiles = shared ? (args.shared_low.rows + kRows - 1) / kRows : 0;
  plan.slices = (routed ? args.routed_low : args.shared_low).cols / kColumnPad;
  plan.warps_per_tile = min(plan.slices, kWarps);
  launch_plan<kStep>(plan, launcher);
}

}  // namespace

void experts_gate_up(const ExpertArgs& args, const Launcher& launcher) {
  run<Step::gate_up>(args, launcher);
}
void experts_down(const ExpertArgs& args, const Launcher& launcher) {
  run<Step::down>(args, launcher);
}

}  // namespace nibble::cuda
