// Products in generation arithmetic of more than 32 rows, in BF16 of more than 16. A block keeps
// the inputs of 32 tokens in shared memory and takes adjacent tiles of 16 rows; a warp makes a
// whole tile, slice after slice, so that no warp waits for another. Up to 32 rows two warps share a
// tile, since there are few: the second leaves the sums of its slices to the first. The sums are
// those of linear_resident.cu, in its order. Matrices of two formats share a launch, and each block
// has one of them. Bound: the bytes of W, and the bandwidth of shared memory, because every warp
// reads all inputs.
#include "backend/cuda/ops/linear/linear_resident.h"
#include "backend/cuda/ops/linear/resident_groups.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kTokens = kTilesTokens;
constexpr int kTiles = kTokens / kTokenTile;
constexpr int kWarps = kTilesWarps;
/// Returns the slices of weights that a warp loads ahead: as many as registers have room for.
constexpr int slices_ahead(bool blocks) { return blocks ? 1 : 2; }

/// Computes the tiles of one block for kTokens tokens from row_begin on, kSplit warps a tile; if
/// there are two, a block has at most a tile for each pair.
template <Format kFormat, int kSplit, bool kBlocks>
class Tiles {
 public:
  __device__ __forceinline__ Tiles(const ResidentPlan& plan, const ResidentGroup& group, int block,
                                   int row_begin, uint4* x)
      : plan_(plan),
        group_(group),
        row_begin_(row_begin),
        x_(x),
        end_(first_step(group, block + 1)) {
    const int team = warp() % kTeams;
    at_ = first_step(group, block) + team;
    const int half = kSplit == 1 ? group.slices : (group.slices + 1) / 2;
    second_ = kSplit > 1 && warp() >= kTeams;
    slice_begin_ = second_ ? half : 0;
    slice_end_ = second_ ? group.slices : half;
    sums_ = reinterpret_cast<TileSums*>(x + group.slices * kSliceWords) +
            team * (group.slices - half) * kTiles;
  }

  __device__ __forceinline__ void run() {
    Slice next[slices_ahead(kBlocks)];
    seek(at_);
#pragma unroll
    for (Slice& slice : next) load_next(slice);
    wait_for_inputs();
    take_inputs();
    __syncthreads();
    float factors[2];
    float total[kTiles][4];
    multiply(next, factors, total);
    if constexpr (kSplit > 1) {
      __syncthreads();
      if (second_ || at_ >= end_) return;
      for (int slice = 0; slice < group_.slices - slice_end_; ++slice)
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          const float4 sum = sums_[slice * kTiles + j][threadIdx.x % 32];
          total[j][0] += sum.x, total[j][1] += sum.y, total[j][2] += sum.z, total[j][3] += sum.w;
        }
      write(factors, total);
    }
  }

 private:
  static constexpr int kTeams = tiles_teams(kSplit);
  static constexpr int kSliceWords = unit_count(kFormat) * 32 * kTiles;
  struct Slice {
    RawSlice<load_count(kFormat)> raw;
    float factors[2] = {1.0F, 1.0F};  // kBlocks
  };

  __device__ __forceinline__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }

  // A warp copies 8 adjacent words of 4 tokens at a time, which are whole lines.
  static constexpr int kPasses = (kSliceWords + kWarps * 32 - 1) / (kWarps * 32);
  static constexpr int kTokenWarps = kTokens / 4;
  static_assert(2 * kWarps % kTokenWarps == 0);  // every other pass is of the same tokens
  static constexpr int kSlicesAtOnce = 4;        // as many as registers allow

  __device__ __forceinline__ static int copied_token(int pass) {
    return (pass * kWarps + warp()) % kTokenWarps * 4 + static_cast<int>(threadIdx.x % 32) / 8;
  }
  __device__ __forceinline__ static int copied_eight(int pass) {
    return (pass * kWarps + warp()) / kTokenWarps * 8 + static_cast<int>(threadIdx.x % 8);
  }
  __device__ __forceinline__ static bool copies(int pass) {
    return (pass * kWarps + warp()) * 32 < kSliceWords;
  }
  __device__ __forceinline__ uint4& copied_to(int slice, int pass) const {
    const int token = copied_token(pass);
    const int place = fragment_of<kFormat>(copied_eight(pass));  // [unit][t]
    return x_[slice * kSliceWords + (place / 4 * kTiles + token / kTokenTile) * 32 +
              token % kTokenTile * 4 + place % 4];
  }
  __device__ __forceinline__ const uint16_t* input_of(int pass) const {
    const int token = min(row_begin_ + copied_token(pass), plan_.rows - 1);
    return plan_.x + (plan_.gather == nullptr ? token : plan_.gather[token]) * plan_.x_stride;
  }
  __device__ __forceinline__ void take_inputs() const {
    const uint16_t* const x[2] = {input_of(0), input_of(1)};
#pragma unroll 1
    for (int begin = 0; begin < group_.slices; begin += kSlicesAtOnce) {
      uint4 v[kSlicesAtOnce][kPasses];
      const auto each = [&](auto&& what) {
#pragma unroll
        for (int i = 0; i < kSlicesAtOnce; ++i)
#pragma unroll
          for (int pass = 0; pass < kPasses; ++pass)
            if (begin + i < group_.slices && copies(pass)) what(begin + i, pass, v[i][pass]);
      };
      each([&](int slice, int pass, uint4& value) {
        const int column = slice * slice_columns(kFormat) + 8 * copied_eight(pass);
        value = *reinterpret_cast<const uint4*>(x[pass % 2] + column);
      });
      each([&](int slice, int pass, const uint4& value) {
        copied_to(slice, pass) = pair_inputs<kFormat>(value);
      });
    }
  }

  // The weights run ahead of the products: tile ahead_, slice ahead_slice_ is loaded next.
  __device__ __forceinline__ void seek(int tile) {
    ahead_ = tile;
    ahead_slice_ = slice_begin_;
    if (tile >= end_) return;
    const LinearSegment& segment = segment_of(group_, tile);
    const DeviceLinear& w = segment.out.weight;
    const int low = (tile - segment.tile_begin) * kRowTile +
                    lane_row(static_cast<int>(threadIdx.x % 32) / 4, 0);
    low_ = row_of<kFormat>(w, min(low, w.rows - 1));
    high_ = row_of<kFormat>(w, min(low + 2, w.rows - 1));
  }
  __device__ __forceinline__ void load_next(Slice& slice) {
    if (ahead_ >= end_ || (kSplit > 1 && ahead_slice_ == slice_end_)) return;
    load_slice<kFormat>(low_, high_, ahead_slice_, slice.raw);
    if constexpr (kBlocks) block_factors(group_, ahead_, ahead_slice_, slice.factors);
    if (++ahead_slice_ == slice_end_ && kSplit == 1) seek(ahead_ + kTeams);
  }

  /// Computes and writes this warp's tiles. With two warps a tile it makes the sums of its half:
  /// the first warp leaves them in `total`, the second in shared memory.
  __device__ __forceinline__ void multiply(Slice (&next)[slices_ahead(kBlocks)],
                                           float (&factors)[2], float (&total)[kTiles][4]) {
    int slice = slice_begin_;
    clear(total);
    while (at_ < end_) {
#pragma unroll
      for (Slice& of : next) {
        if (at_ >= end_) break;
        if (kSplit > 1 && slice == slice_end_) return;
        if (slice == 0) look_ahead(factors);
        float acc[kTiles][4];
        multiply_resident<kFormat, kBlocks>(of.raw, x_ + slice * kSliceWords, of.factors, acc);
        load_next(of);
        if (second_) {
          store_sums(sums_ + (slice - slice_begin_) * kTiles, acc);
        } else {
#pragma unroll
          for (int j = 0; j < kTiles; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) total[j][i] += acc[j][i];
        }
        if (++slice < slice_end_ || kSplit > 1) continue;
        write(factors, total);
        clear(total);
        slice = 0;
        at_ += kTeams;
      }
    }
  }
  __device__ __forceinline__ static void clear(float (&total)[kTiles][4]) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) total[j][i] = 0.0F;
  }

  __device__ __forceinline__ int row_of_lane(const LinearSegment& segment, int high) const {
    return (at_ - segment.tile_begin) * kRowTile +
           lane_row(static_cast<int>(threadIdx.x % 32) / 4, high);
  }
  /// Loads the factors of a lane's two rows, which are needed when the tile's products are made.
  __device__ __forceinline__ void look_ahead(float (&factors)[2]) const {
    const LinearSegment& segment = segment_of(group_, at_);
    const DeviceLinear& w = segment.out.weight;
#pragma unroll
    for (int high = 0; high < 2; ++high)
      factors[high] = row_factor(w, min(row_of_lane(segment, high), w.rows - 1));
  }
  /// Writes a lane's part of a tile, which is two rows of tokens 2 t and 2 t + 1 of each eight.
  __device__ __forceinline__ void write(const float (&factors)[2],
                                        const float (&total)[kTiles][4]) const {
    const LinearSegment& segment = segment_of(group_, at_);
    const LinearOutput& out = segment.out;
    const int first = row_begin_ + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const int row = row_of_lane(segment, high);
      if (row >= out.weight.rows) continue;
      const auto each = [&](auto&& what) {
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int token = first + j * kTokenTile + i;
            if (token < plan_.rows) what(j, i, out.y[token * out.y_stride + row]);
          }
      };
      float old[kTiles][2];
      if (out.finish == Finish::add) each([&](int j, int i, const float& y) { old[j][i] = y; });
      each([&](int j, int i, float& y) {
        const float value = __fmul_rn(total[j][2 * high + i], factors[high]);
        y = out.finish == Finish::add ? __fadd_rn(old[j][i], value) : value;
      });
    }
  }

  const ResidentPlan& plan_;
  const ResidentGroup& group_;
  int row_begin_;
  uint4* x_;
  TileSums* sums_;  // sums of the second warp of this tile
  int at_, end_;    // this warp's tile; the one after the block's last
  bool second_;
  int slice_begin_, slice_end_;
  int ahead_ = 0;
  int ahead_slice_ = 0;
  RowPointers low_, high_;
};

template <Format kFormat, int kSplit, bool kBlocks, bool kMixed>
__global__ void __launch_bounds__(kWarps * 32, 1)
    tiles_kernel(const __grid_constant__ ResidentPlan plan) {
  touch(plan);
  extern __shared__ __align__(128) uint4 x[];
  const int first_blocks = plan.first.blocks * plan.first.row_groups;
  const int block = blockIdx.x;
  const bool beside = kMixed && block >= first_blocks;
  const int index = beside ? block - first_blocks : block;
  const int row_begin = index % plan.first.row_groups * kTokens;
  const int at = index / plan.first.row_groups;
  if constexpr (kMixed)
    if (beside)
      return Tiles<Format::bf16, kSplit, false>(plan, plan.second, at, row_begin, x).run();
  Tiles<kFormat, kSplit, kBlocks>(plan, plan.first, at, row_begin, x).run();
}

template <Format kFormat, int kSplit, bool kBlocks, bool kMixed>
void launch_tiles(ResidentPlan plan, const LinearPlan& chosen, const Launcher& launcher) {
  plan.first.row_groups = plan.second.row_groups = ceil_div(plan.rows, kTokens);
  if (kMixed) spread(plan.second, 1, chosen.second_blocks);
  spread(plan.first, 1, chosen.blocks);
  const auto kernel = tiles_kernel<kFormat, kSplit, kBlocks, kMixed>;
  launcher.device->allow_shared(kernel, launcher.device->facts().shared_bytes);
  const int blocks = (plan.first.blocks + plan.second.blocks) * plan.first.row_groups;
  launch(kernel, launcher, static_cast<unsigned>(blocks), kWarps * 32,
         static_cast<size_t>(chosen.shared_bytes), plan);
}

}  // namespace

void linear_tiles(const LinearArgs& args, const LinearPlan& chosen, const Launcher& launcher) {
  const ResidentPlan plan = resident_plan(args);
  if (chosen.warps_per_tile == 2)
    return launch_tiles<Format::bf16, 2, false, false>(plan, chosen, launcher);
  with_layout(chosen.format, layout_of(args), [&]<Format kFormat, bool kBlocks>() {
    if (chosen.mix == Mix::one_format)
      return launch_tiles<kFormat, 1, kBlocks, false>(plan, chosen, launcher);
    if constexpr (kFormat != Format::bf16)
      launch_tiles<kFormat, 1, kBlocks, true>(plan, chosen, launcher);
  });
}

}  // namespace nibble::cuda
