// The feed-forward of chosen experts and of the shared expert (or of a dense MLP) in generation
// arithmetic: gate and up without experts in linear_stream.cu where the card has wgmma, those whose
// inputs shared memory holds in experts_resident.cu and experts_row.cu, the rest here. A block of 8
// warps takes tiles of 16 rows of one expert's matrix and all tokens of that expert, 8 at a time;
// sums are made as in linear.cu. Bound: the bytes of the experts that have tokens, each read once.
#include "backend/cuda/ops/experts/experts_resident.cuh"
#include "backend/cuda/ops/linear/linear_stream.h"
#include "backend/cuda/ops/linear/warp_matrix.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kTokens = 8;  // tokens of one matrix instruction

struct Plan {
  ExpertArgs args;
  int32_t routed_tiles = 0;  // tiles of one expert; 0: no experts
  int32_t shared_tiles = 0;
  int32_t slices = 0;
  int32_t warps_per_tile = 0;
};

/// An item is one tile (of gate_up 8 rows of gate and the same 8 of up, of down 16 rows) of one
/// expert, or of the shared matrix (expert -1).
struct Item {
  int expert = -1;
  int tile = 0;
  int first = 0;  // first assignment; of the shared matrix: row 0
  int count = 0;  // tokens
};

template <ExpertPart kPart>
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

template <ExpertPart kPart>
__device__ __forceinline__ int low_row(const Item& item, int g) {
  return kPart == ExpertPart::gate_up ? 8 * item.tile + g : 16 * item.tile + g;
}

/// ItemRows has the rows that a lane reads of an item's tile.
struct ItemRows {
  RowPointers low, high;
};

template <ExpertPart kPart, Format kFormat>
__device__ __forceinline__ ItemRows rows_of(const Plan& plan, const Item& item) {
  const DeviceLinear& low = low_of(plan.args, item.expert);
  const DeviceLinear& high = high_of(plan.args, item.expert);
  const int first = low_row<kPart>(item, static_cast<int>(threadIdx.x % 32) / 4);
  const int second = kPart == ExpertPart::gate_up ? first : first + 8;
  const int64_t base = static_cast<int64_t>(max(item.expert, 0)) * low.rows;
  return {.low = row_of<kFormat>(low, base + min(first, low.rows - 1)),
          .high = row_of<kFormat>(high, base + min(second, high.rows - 1))};
}

template <ExpertPart kPart, Format kFormat>
__device__ __forceinline__ void load_item(const Plan& plan, const Item& item, int slice,
                                          RawSlice<load_count(kFormat)>& raw) {
  const ItemRows rows = rows_of<kPart, kFormat>(plan, item);
  load_slice<kFormat>(rows.low, rows.high, slice, raw);
}

/// Return the input row and the output row of token `index` of an item.
template <ExpertPart kPart>
__device__ __forceinline__ int64_t output_row(const ExpertArgs& a, const Item& item, int index) {
  if (item.expert < 0) return a.shared_begin + index;
  return a.routing.assignments[item.first + index];
}
template <ExpertPart kPart>
__device__ __forceinline__ int64_t input_row(const ExpertArgs& a, const Item& item, int index) {
  const int64_t row = output_row<kPart>(a, item, index);
  if (kPart == ExpertPart::down) return row;
  return item.expert < 0 ? index : row / a.top_k;
}

__device__ __forceinline__ int64_t first_factor(const DeviceLinear& w, int expert) {
  return max(expert, 0) * w.factor_stride;
}
__device__ __forceinline__ float row_factor(const DeviceLinear& w, int expert, int row) {
  return plain_factor(w, first_factor(w, expert), row);
}

/// Reads the factors of the 128-column halves of a slice. Those of gate in the low rows of a tile
/// and of up in its high rows would differ, so block scales are applied to each half of the sums.
template <ExpertPart kPart>
__device__ __forceinline__ void block_factors(const DeviceLinear& w, const Item& item, int slice,
                                              float (&factors)[2]) {
  factors[0] = factors[1] = 1.0F;
  block_factors(w, w.factors + first_factor(w, item.expert), low_row<kPart>(item, 0), slice,
                factors);
}

template <ExpertPart kPart, Format kFormat>
__device__ __forceinline__ void multiply_item(const Plan& plan, const Item& item, int slice,
                                              const RawSlice<load_count(kFormat)>& raw,
                                              const uint16_t* x, float (&acc)[1][4]) {
  const uint16_t* const at[1] = {x + slice * slice_columns(kFormat)};
  float factors[2];
  block_factors<kPart>(low_of(plan.args, item.expert), item, slice, factors);
  if constexpr (kFormat == Format::fp8 && kPart == ExpertPart::gate_up) {
    if (low_of(plan.args, item.expert).layout == FactorLayout::block128) {
      float high_factors[2];
      block_factors<kPart>(high_of(plan.args, item.expert), item, slice, high_factors);
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

/// A Destination is the place at which a thread writes one row of a tile, computed before the sums
/// are there.
struct Destination {
  Item item;
  int row = 0;  // row of the tile
  int n = 0;    // row of the matrix
  float low_factor = 0.0F, high_factor = 0.0F;
};

template <ExpertPart kPart>
__device__ __forceinline__ Destination destination_of(const Plan& plan, int flat, int row,
                                                      int active) {
  const ExpertArgs& a = plan.args;
  Destination to{.item = item_at<kPart>(plan, flat, active), .row = row};
  to.n = low_row<kPart>(to.item, row);
  if (to.n >= low_of(a, to.item.expert).rows) to.item.count = 0;
  if (to.item.count == 0) return to;
  to.low_factor = row_factor(low_of(a, to.item.expert), to.item.expert, to.n);
  if (kPart == ExpertPart::gate_up)
    to.high_factor = row_factor(high_of(a, to.item.expert), to.item.expert, to.n);
  return to;
}

template <ExpertPart kPart>
__device__ __forceinline__ void write_item(const Plan& plan, const Destination& to, int group,
                                           const Sums& sums, int first_warp) {
  const ExpertArgs& a = plan.args;
  const int tokens = min(kTokens, to.item.count - group * kTokens);
  for (int token = 0; token < tokens; ++token) {
    const int64_t at = output_row<kPart>(a, to.item, group * kTokens + token);
    float low = 0.0F;
    float high = 0.0F;
    for (int w = first_warp; w < first_warp + plan.warps_per_tile; ++w) {
      low += sums[w][token][to.row];
      if (kPart == ExpertPart::gate_up) high += sums[w][token][to.row + 8];
    }
    low *= to.low_factor;
    if constexpr (kPart == ExpertPart::down) {
      a.y[at * a.y_stride + to.n] = low;
    } else {
      a.act[at * a.act_stride + x_place(to.n)] = to_bf16(silu(low) * (high * to.high_factor));
    }
  }
}

template <ExpertPart kPart, Format kFormat>
__global__ void __launch_bounds__(kWarps * 32, kFormat == Format::nvfp4 ? 3 : 2)
    expert_kernel(const __grid_constant__ Plan plan) {
  constexpr int kRows = kPart == ExpertPart::gate_up ? 8 : 16;
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
    item = item_at<kPart>(plan, flat, 0);
    load_item<kPart, kFormat>(plan, item, first_slice, raw);
  }
  wait_for_inputs();
  const int active = plan.routed_tiles == 0 ? 0 : *a.routing.active_count;
  const int tiles = plan.shared_tiles + active * plan.routed_tiles;
  if (works && !early && flat < tiles) {
    item = item_at<kPart>(plan, flat, active);
    load_item<kPart, kFormat>(plan, item, first_slice, raw);
  }
  const uint16_t* input = kPart == ExpertPart::gate_up ? a.x : a.act;
  const int64_t stride = kPart == ExpertPart::gate_up ? a.x_stride : a.act_stride;

  for (int base = blockIdx.x * tiles_per_block; base < tiles; base += gridDim.x * tiles_per_block) {
    flat = base + local_tile;
    const int write_tile = threadIdx.x / kRows;  // the rows of all tiles, a thread each
    const Destination to =
        write_tile < tiles_per_block && base + write_tile < tiles
            ? destination_of<kPart>(plan, base + write_tile, threadIdx.x % kRows, active)
            : Destination();
    int groups = 0;  // groups of 8 tokens of the largest tile of this block
    for (int t = 0; t < tiles_per_block; ++t)
      groups = max(groups, (item_at<kPart>(plan, base + t, active).count + kTokens - 1) / kTokens);
    for (int group = 0; group < groups; ++group) {
      float acc[1][4] = {};
      if (works && flat < tiles && group * kTokens < item.count) {
        const int token = min(group * kTokens + lane / 4, item.count - 1);
        const uint16_t* x = input + input_row<kPart>(a, item, token) * stride;
        if (group > 0 && plan.slices > kWarps)
          load_item<kPart, kFormat>(plan, item, first_slice, raw);
        multiply_item<kPart, kFormat>(plan, item, first_slice, raw, x, acc);
        for (int slice = first_slice + kWarps; slice < plan.slices; slice += kWarps) {
          load_item<kPart, kFormat>(plan, item, slice, raw);
          multiply_item<kPart, kFormat>(plan, item, slice, raw, x, acc);
        }
      }
      const int next = flat + gridDim.x * tiles_per_block;
      Item next_item;
      if (works && group == groups - 1 && next < tiles) {
        next_item = item_at<kPart>(plan, next, active);
        load_item<kPart, kFormat>(plan, next_item, first_slice, raw);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[warp][2 * (lane % 4) + i % 2][lane / 4 + i / 2 * 8] = acc[0][i];
      __syncthreads();
      if (to.item.count > 0)
        write_item<kPart>(plan, to, group, sums, write_tile * plan.warps_per_tile);
      __syncthreads();
      if (group == groups - 1) item = next_item;
    }
  }
}

/// The stream kernel takes 8 tokens of the shared matrix as one item, tiles of it first.
struct StreamItem {
  Item item;
  int group = 0;   // index of a group of 8 tokens
  int groups = 1;  // one past the last group of this item
};

template <ExpertPart kPart>
__device__ __forceinline__ StreamItem stream_item_at(const Plan& plan, int flat, int active) {
  const int shared_groups = (plan.args.rows + kTokens - 1) / kTokens;
  const int shared_items = plan.shared_tiles * shared_groups;
  StreamItem out;
  if (flat < shared_items) {
    out.item = item_at<kPart>(plan, flat % max(plan.shared_tiles, 1), active);
    out.group = flat / max(plan.shared_tiles, 1);
    out.groups = out.group + 1;
    return out;
  }
  out.item = item_at<kPart>(plan, flat - shared_items + plan.shared_tiles, active);
  out.groups = (out.item.count + kTokens - 1) / kTokens;
  return out;
}

/// Lane (g, t) holds rows g and g + 8 of the tile for tokens 2t and 2t + 1. `row`: the output row
/// of token g, -1 beyond the last.
template <ExpertPart kPart>
__device__ __forceinline__ void write_tokens(const Plan& plan, const Item& item, int64_t row,
                                             const float (&total)[4]) {
  const ExpertArgs& a = plan.args;
  const int lane = threadIdx.x % 32;
  const int n = low_row<kPart>(item, lane / 4);
  const DeviceLinear& low = low_of(a, item.expert);
  const float low_factor = n < low.rows ? row_factor(low, item.expert, n) : 0.0F;
  const int n_high = kPart == ExpertPart::gate_up ? n : n + 8;
  const float high_factor =
      n_high < low.rows ? row_factor(high_of(a, item.expert), item.expert, n_high) : 0.0F;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t to = __shfl_sync(kAllLanes, row, 4 * (2 * (lane % 4) + i));
    if (to < 0) continue;
    const float first = total[i] * low_factor;
    const float second = total[2 + i] * high_factor;
    if constexpr (kPart == ExpertPart::gate_up) {
      if (n < low.rows) a.act[to * a.act_stride + x_place(n)] = to_bf16(silu(first) * second);
    } else {
      if (n < low.rows) a.y[to * a.y_stride + n] = first;
      if (n_high < low.rows) a.y[to * a.y_stride + n_high] = second;
    }
  }
}

template <ExpertPart kPart, Format kFormat>
__global__ void __launch_bounds__(kWarps * 32, 2)
    expert_chain_kernel(const __grid_constant__ Plan plan) {
  const ExpertArgs& a = plan.args;
  const int lane = threadIdx.x % 32;
  const int stride = gridDim.x * kWarps;
  // Adjacent warps of a block take adjacent tiles, and blocks take tiles that are far apart.
  int flat = blockIdx.x * kWarps + threadIdx.x / 32;
  wait_for_inputs();
  const int active = plan.routed_tiles == 0 ? 0 : *a.routing.active_count;
  const int items =
      plan.shared_tiles * ((a.rows + kTokens - 1) / kTokens) + active * plan.routed_tiles;
  if (flat >= items) return;
  const uint16_t* input = kPart == ExpertPart::gate_up ? a.x : a.act;
  const int64_t input_stride = kPart == ExpertPart::gate_up ? a.x_stride : a.act_stride;
  const auto token_row = [&](const StreamItem& of, bool output) -> int64_t {
    const int index = of.group * kTokens + lane / 4;
    if (index >= of.item.count)
      return output ? -1 : input_row<kPart>(a, of.item, of.item.count - 1);
    return output ? output_row<kPart>(a, of.item, index) : input_row<kPart>(a, of.item, index);
  };

  StreamItem now = stream_item_at<kPart>(plan, flat, active);
  int slice = 0;
  RawSlice<load_count(kFormat)> raw;
  ItemRows rows = rows_of<kPart, kFormat>(plan, now.item);
  load_slice<kFormat>(rows.low, rows.high, 0, raw);
  const uint16_t* x = input + token_row(now, false) * input_stride;
  int64_t out_row = token_row(now, true);
  float total[4] = {};
  float part[1][4] = {};
  while (flat < items) {
    StreamItem next = now;
    int following = next_slice(slice, plan.slices, kWarps);
    const bool part_ends = ends_part(slice, plan.slices, kWarps);
    const bool group_ends = part_ends && (following >= plan.slices || following == kWarps);
    if (group_ends) {
      following = 0;
      if (++next.group >= next.groups) {
        flat += stride;
        next = stream_item_at<kPart>(plan, min(flat, items - 1), active);
        rows = rows_of<kPart, kFormat>(plan, next.item);
      }
    }
    RawSlice<load_count(kFormat)> next_raw;
    load_slice<kFormat>(rows.low, rows.high, following, next_raw);
    const uint16_t* next_x = x;
    int64_t next_out_row = out_row;
    if (group_ends) {
      next_x = input + token_row(next, false) * input_stride;
      next_out_row = token_row(next, true);
    }
    multiply_item<kPart, kFormat>(plan, now.item, slice, raw, x, part);
    if (part_ends) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        total[i] += part[0][i];
        part[0][i] = 0.0F;
      }
    }
    if (group_ends) {
      write_tokens<kPart>(plan, now.item, out_row, total);
#pragma unroll
      for (int i = 0; i < 4; ++i) total[i] = 0.0F;
    }
    raw = next_raw;
    x = next_x;
    out_row = next_out_row;
    now = next;
    slice = following;
  }
}

template <ExpertPart kPart, Format kFormat>
void launch_experts(const Plan& plan, ExpertKernel chosen, const Launcher& launcher) {
  const ExpertArgs& a = plan.args;
  const bool chains = chosen == ExpertKernel::chain;
  const auto kernel = chains ? expert_chain_kernel<kPart, kFormat> : expert_kernel<kPart, kFormat>;
  const int resident = launcher.device->resident_blocks(kernel, kWarps * 32);
  const int shared_items =
      chains ? plan.shared_tiles * ((a.rows + kTokens - 1) / kTokens) : plan.shared_tiles;
  const int items = shared_items + plan.routed_tiles * min(a.experts, a.rows * a.top_k);
  const int items_per_block = chains ? kWarps : kWarps / plan.warps_per_tile;
  const int groups = (items + items_per_block - 1) / items_per_block;
  const auto blocks = static_cast<unsigned>(min(groups, resident * launcher.card.multiprocessors));
  launch(kernel, launcher, blocks, kWarps * 32, 0, plan);
}

/// `args` with the matrices of one launch alone.
ExpertArgs stacks_of(ExpertArgs args, ExpertStacks stacks) {
  if (stacks == ExpertStacks::routed) args.shared_low = args.shared_high = {};
  if (stacks == ExpertStacks::shared) args.routed_low = args.routed_high = {};
  return args;
}

template <ExpertPart kPart>
void launch_plan(const ExpertArgs& args, const ExpertsPlan& chosen, const Launcher& launcher) {
  constexpr int kRows = kPart == ExpertPart::gate_up ? 8 : 16;
  Plan plan = {.args = stacks_of(args, chosen.stacks)};
  const DeviceLinear& routed = plan.args.routed_low;
  const DeviceLinear& shared = plan.args.shared_low;
  plan.routed_tiles = routed.present() ? ceil_div(routed.rows, kRows) : 0;
  plan.shared_tiles = shared.present() ? ceil_div(shared.rows, kRows) : 0;
  plan.slices = slice_count(routed.present() ? routed : shared);
  plan.warps_per_tile = min(plan.slices, kWarps);
  with_value<Format::bf16, Format::fp8, Format::nvfp4>(chosen.format, [&]<Format kFormat>() {
    launch_experts<kPart, kFormat>(plan, chosen.kernel, launcher);
  });
}

template <ExpertPart kPart>
void run(const ExpertArgs& args, const Launcher& launcher) {
  for (const ExpertsPlans plans = select_experts(kPart, args, launcher.card);
       const ExpertsPlan& plan : plans.all()) {
    log_launch(launcher, plan, {.weights = plan.weight_bytes});
    switch (plan.kernel) {
      case ExpertKernel::row:
        kPart == ExpertPart::gate_up ? launch_row_gate_up(args, launcher)
                                     : launch_down_sum(args, launcher);
        break;
      case ExpertKernel::resident:
        launch_experts_resident(kPart, args, plan, launcher);
        break;
      case ExpertKernel::stream:
        gate_up_stream(args, plan.streamed, launcher);
        break;
      case ExpertKernel::split:
      case ExpertKernel::chain:
        launch_plan<kPart>(args, plan, launcher);
        break;
    }
  }
}

}  // namespace

void experts_gate_up(const ExpertArgs& args, const Launcher& launcher) {
  run<ExpertPart::gate_up>(args, launcher);
}
void experts_down(const ExpertArgs& args, const Launcher& launcher) {
  run<ExpertPart::down>(args, launcher);
}

}  // namespace nibble::cuda
