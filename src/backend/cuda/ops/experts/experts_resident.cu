// Experts in generation arithmetic with the inputs resident in shared memory. An item is one expert
// with up to 8 of its tokens; a tile has 8 rows of gate and the same 8 of up, or 16 of down. A
// block takes adjacent tiles of adjacent items, and a warp a whole tile, slice after slice, so that
// no warp waits for another. Bound: the bytes of the experts that have tokens, each read once (for
// every 8 of its tokens).
#include "backend/cuda/ops/experts/experts_resident.cuh"

namespace nibble::cuda {
namespace {

constexpr int kItemsResident = kResidentItems;  // items in shared memory at once
constexpr int kBlocks = 2;                      // thread blocks that share an SM
/// Returns the slices of weights that a warp loads ahead: as many as registers have room for.
constexpr int slices_ahead(Format format) { return format == Format::nvfp4 ? 2 : 1; }

/// An item is one expert (-1: the shared one) with up to 8 tokens.
struct Item {
  int expert = -1;
  int first = 0;  // first assignment; of the shared expert: first row
  int count = 0;
  int tiles = 0;
};

/// Returns the tiles of the shared expert, for every 8 rows; those of the others follow.
__device__ __forceinline__ int shared_tiles(const ExpertPlan& plan) {
  return plan.shared_tiles * ((plan.args.rows + kTokenTile - 1) / kTokenTile);
}

/// Returns the item of a tile, and the tile's place in it.
__device__ __forceinline__ Item item_of(const ExpertPlan& plan, int tile, int& place) {
  const ExpertArgs& a = plan.args;
  const int shared_all = shared_tiles(plan);
  Item item;
  if (tile < shared_all) {
    item.first = tile / plan.shared_tiles * kTokenTile;
    item.count = min(kTokenTile, a.rows - item.first);
    item.tiles = plan.shared_tiles;
    place = tile % plan.shared_tiles;
    return item;
  }
  const int index = (tile - shared_all) / plan.routed_tiles;
  place = (tile - shared_all) % plan.routed_tiles;
  item.tiles = plan.routed_tiles;
  const int4 packed = __ldcg(&a.routing.items[index]);
  item.expert = packed.x;
  item.first = packed.y;
  item.count = packed.z;
  return item;
}

/// A TileRange has the tiles of an item that a block computes.
struct TileRange {
  Item item;
  int first = 0;
  int count = 0;
  float low = 1.0F, high = 1.0F;  // factors of the whole matrices
};

template <ExpertPart kPart, Format kFormat, int kWarps>
class Tiles {
 public:
  using Raw = RawSlice<load_count(kFormat)>;
  static constexpr int kDepth = slices_ahead(kFormat);

  __device__ __forceinline__ Tiles(const ExpertPlan& plan, TileRange (&ranges)[kItemsResident],
                                   int (&rows)[kItemsResident][kTokenTile], uint4* x)
      : plan_(plan), a_(plan.args), ranges_(ranges), rows_(rows), x_(x) {}

  /// Tiles from `begin` to `end`. `waits`: the inputs may not be there yet.
  __device__ __forceinline__ void run(int begin, int end, bool waits) {
    while (begin < end) {
      __syncthreads();  // no thread reads the previous items any more
      if (threadIdx.x < kItemsResident) find(begin, end);
      __syncthreads();
      first_count_ = ranges_[0].count;
      count_ = first_count_ + ranges_[1].count;
      Raw raw[kDepth];
      seek(warp());
#pragma unroll
      for (Raw& slice : raw) load_next(slice);
      if (waits) wait_for_inputs();
      waits = false;
      take_inputs();
      __syncthreads();
      multiply(raw);
      begin += count_;
    }
    if (waits) wait_for_inputs();
  }

 private:
  __device__ __forceinline__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }

  /// Thread i finds the i-th item from `begin` on.
  __device__ __forceinline__ void find(int begin, int end) {
    TileRange found;
    for (int i = 0; i <= static_cast<int>(threadIdx.x); ++i) {
      begin += found.count;
      found.count = 0;
      if (begin >= end) break;
      found.item = item_of(plan_, begin, found.first);
      found.count = min(found.item.tiles - found.first, end - begin);
    }
    if (found.count > 0) {
      found.low = factor_of(low_of(a_, found.item.expert), found.item.expert, 0);
      if (kPart == ExpertPart::gate_up)
        found.high = factor_of(high_of(a_, found.item.expert), found.item.expert, 0);
    }
    ranges_[threadIdx.x] = found;
  }
  __device__ __forceinline__ int64_t output_row(const Item& item, int token) const {
    if (item.expert < 0) return a_.shared_begin + item.first + token;
    return a_.routing.assignments[item.first + token];
  }
  /// Each warp stores a slice of an item at a time.
  __device__ __forceinline__ void take_inputs() const {
    if (threadIdx.x < kItemsResident * kTokenTile) {
      const Item& item = ranges_[threadIdx.x / kTokenTile].item;
      const auto token = static_cast<int>(threadIdx.x % kTokenTile);
      if (token < item.count)
        rows_[threadIdx.x / kTokenTile][token] = static_cast<int>(output_row(item, token));
    }
#pragma unroll 1
    for (int i = warp(); i < kItemsResident * plan_.slices; i += kWarps) {
      const int which = i / plan_.slices;
      const Item& item = ranges_[which].item;
      if (ranges_[which].count == 0) break;
      const InputRows<1> rows([&](int index) -> const uint16_t* {
        const int token = min(index, item.count - 1);
        const int64_t out = output_row(item, token);
        if (kPart == ExpertPart::down) return a_.act + out * a_.act_stride;
        return a_.x + (item.expert < 0 ? item.first + token : out / a_.top_k) * a_.x_stride;
      });
      store_fragments<kFormat>(rows, i - which * plan_.slices, x_ + i * (unit_count(kFormat) * 32));
    }
  }

  // The weights run ahead of the products: ahead_ is the tile and ahead_slice_ the slice that is
  // loaded next, from from_.
  __device__ __forceinline__ void seek(int at) {
    ahead_ = at;
    ahead_slice_ = 0;
    if (at >= count_) return;
    const bool second = at >= first_count_;
    const TileRange& range = ranges_[second ? 1 : 0];
    const int tile = range.first + at - (second ? first_count_ : 0);
    from_ = tile_at<kPart, kFormat>(a_, range.item.expert, tile,
                                    static_cast<int>(threadIdx.x % 32) / 4);
  }
  __device__ __forceinline__ void load_next(Raw& raw) {
    if (ahead_ >= count_) return;
    load_tile<kFormat>(from_, 0, raw);
    from_.values += value_bytes(kFormat, slice_columns(kFormat));
    from_.scales += slice_columns(kFormat) / 16;
    if (++ahead_slice_ == plan_.slices) seek(ahead_ + kWarps);
  }

  /// Computes the tiles of this warp; their first slices are being loaded into `raw`.
  __device__ __forceinline__ void multiply(Raw (&raw)[kDepth]) {
    constexpr int kSliceWords = unit_count(kFormat) * 32;
    int slice = 0;
    float total[4] = {};
#pragma unroll 1
    for (int at = warp(); at < count_;) {
#pragma unroll
      for (int r = 0; r < kDepth; ++r) {
        if (at >= count_) break;
        const int second = at >= first_count_ ? 1 : 0;
        const uint4* x = x_ + (second * plan_.slices + slice) * kSliceWords;
        float acc[1][4];
        constexpr float kNone[2] = {1.0F, 1.0F};
        multiply_resident<kFormat, false>(raw[r], x, kNone, acc);
        load_next(raw[r]);
#pragma unroll
        for (int i = 0; i < 4; ++i) total[i] += acc[0][i];
        if (++slice < plan_.slices) continue;
        write(second, at - (second != 0 ? first_count_ : 0), total);
#pragma unroll
        for (float& sum : total) sum = 0.0F;
        slice = 0;
        at += kWarps;
      }
    }
  }
  /// Writes a lane's part of a tile, which is rows g and g + 8 of tokens 2 t and 2 t + 1.
  __device__ __forceinline__ void write(int second, int at, const float (&total)[4]) const {
    const int g = static_cast<int>(threadIdx.x % 32) / 4;
    const Item& item = ranges_[second].item;
    const int tile = ranges_[second].first + at;
    const DeviceLinear& w = low_of(a_, item.expert);
    const bool by_row = w.layout == FactorLayout::row;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = 2 * static_cast<int>(threadIdx.x % 4) + i;
      if (token >= item.count) break;
      const int64_t row = rows_[second][token];
      if constexpr (kPart == ExpertPart::gate_up) {
        const int n = 8 * tile + g;
        const float low = by_row ? factor_of(w, item.expert, n) : ranges_[second].low;
        const float high =
            by_row ? factor_of(high_of(a_, item.expert), item.expert, n) : ranges_[second].high;
        a_.act[row * a_.act_stride + x_place(n)] =
            to_bf16(silu(total[i] * low) * (total[2 + i] * high));
      } else {
#pragma unroll
        for (int high = 0; high < 2; ++high) {
          const int n = kRowTile * tile + lane_row(g, high);
          const float factor = by_row ? factor_of(w, item.expert, n) : ranges_[second].low;
          a_.y[row * a_.y_stride + n] = __fmul_rn(total[2 * high + i], factor);
        }
      }
    }
  }

  const ExpertPlan& plan_;
  const ExpertArgs& a_;
  TileRange (&ranges_)[kItemsResident];
  int (&rows_)[kItemsResident][kTokenTile];
  uint4* x_;
  TilePointers from_;
  int first_count_ = 0, count_ = 0;  // tiles of the first item, of both
  int ahead_ = 0;
  int ahead_slice_ = 0;
};

template <ExpertPart kPart, Format kFormat, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    resident_experts_kernel(const __grid_constant__ ExpertPlan plan) {
  extern __shared__ __align__(128) uint4 x[];
  __shared__ TileRange ranges[kItemsResident];
  __shared__ int rows[kItemsResident][kTokenTile];
  touch(plan);
  // The routing is older than the activations that down waits for.
  if (kPart == ExpertPart::gate_up) wait_for_inputs();
  const int routed =
      plan.routed_tiles == 0 ? 0 : __ldcg(plan.args.routing.item_count) * plan.routed_tiles;
  const int tiles = shared_tiles(plan) + routed;
  const auto blocks = static_cast<int>(gridDim.x);
  const auto block = static_cast<int>(blockIdx.x);
  const int each = tiles / blocks;
  const int more = tiles - each * blocks;  // blocks with one tile more
  const int begin = block * each + min(block, more);
  Tiles<kPart, kFormat, kWarps>(plan, ranges, rows, x)
      .run(begin, begin + each + (block < more ? 1 : 0), kPart == ExpertPart::down);
}

template <ExpertPart kPart, Format kFormat, int kWarps>
void launch_tiles(const ExpertArgs& args, const ExpertsPlan& chosen, const Launcher& launcher) {
  const auto kernel = resident_experts_kernel<kPart, kFormat, kWarps>;
  const ExpertPlan plan = plan_of(kPart, args);
  DeviceContext& device = *launcher.device;
  device.allow_shared(kernel, resident_expert_bytes(kFormat, kResidentWarps));
  const int blocks_each = device.resident_blocks(kernel, kWarps * 32, chosen.shared_bytes);
  const int64_t tiles = int64_t{plan.shared_tiles} * ceil_div(args.rows, kTokenTile) +
                        int64_t{plan.routed_tiles} * args.rows * args.top_k;
  const auto most = int64_t{blocks_each} * launcher.card.multiprocessors;
  launch(kernel, launcher, static_cast<unsigned>(min(tiles, most)), kWarps * 32,
         static_cast<size_t>(chosen.shared_bytes), plan);
}

}  // namespace

void launch_experts_resident(ExpertPart part, const ExpertArgs& args, const ExpertsPlan& plan,
                             const Launcher& launcher) {
  with_value<ExpertPart::gate_up, ExpertPart::down>(part, [&]<ExpertPart kPart>() {
    with_value<Format::fp8, Format::nvfp4>(plan.format, [&]<Format kFormat>() {
      with_value<kResidentManyWarps, kResidentFewWarps>(plan.warps, [&]<int kWarps>() {
        launch_tiles<kPart, kFormat, kWarps>(args, plan, launcher);
      });
    });
  });
}

}  // namespace nibble::cuda
