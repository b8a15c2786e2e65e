// Products in generation arithmetic with the inputs resident in shared memory: y = x W^T is stored,
// added to y or convolved, for two rows and more (linear_row.cu has one row, linear_tiles.cu many
// rows of many tiles). A block takes adjacent tiles of 16 rows for 8, 16 or 32 tokens; matrices of
// two formats share a launch, and each block has one of them. Bound: the bytes of W.
#include "backend/cuda/ops/linear/linear_resident.h"
#include "backend/cuda/ops/linear/resident_groups.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

/// The work of a block of kWarps on a group: kParts slices a warp, kAhead outputs whose values a
/// thread loads during the product, kSlicesAhead slices of weights in a warp's registers.
template <Format kFormat, int kTiles, int kWarps, int kParts>
struct Shape {
  static constexpr ResidentShape kShape = {
      .format = kFormat, .tiles = kTiles, .warps = kWarps, .parts = kParts};
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kSlicesAhead = kShape.slices_ahead();
  static constexpr int kAhead = kTiles * 128 <= kThreads ? 1 : kTiles * 128 / kThreads;
  static constexpr int kSums = kShape.sum_bytes();
};

/// One block's tiles of a group for 8 kTiles tokens from row_begin on. With up to 8 tokens a warp
/// holds the inputs of its own slices and no others.
template <Format kFormat, int kTiles, int kWarps, int kParts, bool kBlocks, bool kConvolves>
class Body {
 public:
  using Sizes = Shape<kFormat, kTiles, kWarps, kParts>;
  using Raw = RawSlice<load_count(kFormat)>;
  static constexpr int kSlicesAhead = Sizes::kSlicesAhead;

  __device__ __forceinline__ Body(const ResidentPlan& plan, const ResidentGroup& group, int block,
                                  int row_begin, uint8_t* memory)
      : plan_(plan),
        group_(group),
        row_begin_(row_begin),
        tokens_(min(kTokenTile * kTiles, plan.rows - row_begin)),
        sums_(reinterpret_cast<TileSums*>(memory)),
        x_(reinterpret_cast<uint4*>(memory + Sizes::kSums)) {
    const int warp = threadIdx.x / 32;
    per_step_ = group.per_step;
    local_ = kParts == 1 ? warp / group.slices : 0;
    slice_ = kParts == 1 ? warp - local_ * group.slices : warp;
    begin_ = first_step(group, block);
    end_ = first_step(group, block + 1);
  }

  __device__ __forceinline__ void run() {
    Raw raw[kSlicesAhead];
#pragma unroll
    for (int r = 0; r < kSlicesAhead; ++r) load(begin_ + r, 0, raw[r]);
    wait_for_inputs();
    take_inputs();
#pragma unroll 1
    for (int step = begin_; step < end_; step += kSlicesAhead) {
      ResidentAhead ahead[Sizes::kAhead];
      ConvolveAhead convolve;
      look_ahead_all(step, ahead, convolve);
#pragma unroll
      for (int r = 0; r < kSlicesAhead; ++r) multiply(step, r, raw[r]);
      __syncthreads();
      finish(step, ahead, convolve);
      buffer_ ^= 1;
    }
  }

 private:
  static constexpr bool kOwnSlices = kTiles == 1;
  static constexpr int kSliceWords = unit_count(kFormat) * 32 * kTiles;

  /// Returns the fragments of part `part` of this warp.
  __device__ __forceinline__ uint4* x_of(int part) const {
    const int at =
        kOwnSlices ? static_cast<int>(threadIdx.x) / 32 * kParts + part : slice_ + kWarps * part;
    return x_ + at * kSliceWords;
  }
  __device__ __forceinline__ void take_inputs() {
    const auto input_of = [&](int index) {
      const int token = min(row_begin_ + index, plan_.rows - 1);
      return plan_.x + (plan_.gather == nullptr ? token : plan_.gather[token]) * plan_.x_stride;
    };
    const InputRows<kTiles> rows(input_of);
    if constexpr (kOwnSlices) {
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        if (slice_ + kWarps * part < group_.slices)
          store_fragments<kFormat>(rows, slice_ + kWarps * part, x_of(part));
      __syncwarp();
    } else {
#pragma unroll 1
      for (int slice = threadIdx.x / 32; slice < group_.slices; slice += kWarps)
        store_fragments<kFormat>(rows, slice, x_ + slice * kSliceWords);
      __syncthreads();
    }
  }
  __device__ __forceinline__ bool works(int step, int part) const {
    return step < end_ && local_ < per_step_ && slice_ + kWarps * part < group_.slices &&
           step * per_step_ + local_ < group_.tiles;
  }
  __device__ __forceinline__ void load(int step, int part, Raw& raw) const {
    if (works(step, part))
      load_slice_of<kFormat>(group_, step * per_step_ + local_, slice_ + kWarps * part, raw);
  }
  /// Returns the sums of a part of a tile: [buffer][slice ahead][warp + kWarps * part][tile of
  /// tokens].
  __device__ __forceinline__ TileSums* sums_of(int r, int part) const {
    return sums_ + ((buffer_ * kSlicesAhead + r) * kParts + part) * (kWarps * kTiles);
  }
  __device__ __forceinline__ void multiply(int step, int r, Raw& raw) {
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float acc[kTiles][4] = {};
      if (works(step + r, part)) {
        float factors[2] = {1.0F, 1.0F};
        if constexpr (kBlocks)
          block_factors(group_, (step + r) * per_step_ + local_, slice_ + kWarps * part, factors);
        multiply_resident<kFormat, kBlocks>(raw, x_of(part), factors, acc);
      }
      load(part + 1 < kParts ? step + r : step + r + kSlicesAhead, (part + 1) % kParts, raw);
      store_sums(sums_of(r, part) + warp * kTiles, acc);
    }
  }
  __device__ __forceinline__ int outputs_of_step() const { return per_step_ * kTiles * 128; }
  /// Returns the step, of the two at most in registers, that output o belongs to.
  __device__ __forceinline__ int step_of(int o) const {
    return kSlicesAhead == 1 || o < outputs_of_step() ? 0 : 1;
  }
  /// Returns the place of output o of the steps from `step` on, and loads what finishing it takes.
  __device__ __forceinline__ ResidentAhead output_at(int step, int o,
                                                     ConvolveAhead& convolve) const {
    const int r = step_of(o);
    const int at = step + r;
    const int tile = at * per_step_ + (o - r * outputs_of_step()) / (kTiles * 128);
    const int token = o / 128 % kTiles * kTokenTile + tile_token(o % 128);
    if (o >= kSlicesAhead * outputs_of_step() || at >= end_ || tile >= group_.tiles ||
        token >= tokens_)
      return {};
    const LinearSegment& segment = segment_of(group_, tile);
    const int row = (tile - segment.tile_begin) * kRowTile + tile_row(o % 128);
    return look_ahead<kConvolves>(segment.out, row, row_begin_ + token, plan_.convolve, convolve);
  }
  __device__ __forceinline__ void look_ahead_all(int step, ResidentAhead (&ahead)[Sizes::kAhead],
                                                 ConvolveAhead& convolve) const {
#pragma unroll
    for (int i = 0; i < Sizes::kAhead; ++i)
      ahead[i] = output_at(step, threadIdx.x + i * Sizes::kThreads, convolve);
  }
  __device__ __forceinline__ void write(int o, const ResidentAhead& to,
                                        const ConvolveAhead& of) const {
    if (to.y == nullptr) return;
    const int per_tile = kTiles * 128;
    const int r = step_of(o);
    const int local = (o - r * outputs_of_step()) / per_tile;
    const TileSums* from = sums_of(r, 0) + local * group_.slices * kTiles + o / 128 % kTiles;
    write_output<kConvolves>(to, add_parts(from, group_.slices, kTiles, o % 128), plan_.convolve,
                             of);
  }
  __device__ __forceinline__ void finish(int step, const ResidentAhead (&ahead)[Sizes::kAhead],
                                         const ConvolveAhead& convolve) const {
#pragma unroll
    for (int i = 0; i < Sizes::kAhead; ++i)
      write(threadIdx.x + i * Sizes::kThreads, ahead[i], convolve);
#pragma unroll 1
    for (int o = threadIdx.x + Sizes::kAhead * Sizes::kThreads;
         o < kSlicesAhead * outputs_of_step(); o += Sizes::kThreads) {
      ConvolveAhead late;
      const ResidentAhead to = output_at(step, o, late);
      write(o, to, late);
    }
  }

  const ResidentPlan& plan_;
  const ResidentGroup& group_;
  int row_begin_, tokens_;
  TileSums* sums_;
  uint4* x_;
  int per_step_, local_, slice_, begin_, end_;
  int buffer_ = 0;
};

constexpr int blocks_wanted(Format format, int tiles, int warps) {
  if (format == Format::nvfp4 && tiles == 1 && warps == 8) return 3;
  return tiles > 1 || warps > 8 ? 1 : 2;
}

template <Format kFormat, int kTiles, int kWarps, bool kBlocks, bool kMixed>
__global__ void __launch_bounds__(kWarps * 32, blocks_wanted(kFormat, kTiles, kWarps))
    resident_kernel(const __grid_constant__ ResidentPlan plan) {
  touch(plan);
  extern __shared__ __align__(128) uint8_t memory[];
  const int block = blockIdx.x;
  const int first_blocks = plan.first.blocks * plan.first.row_groups;
  if constexpr (kMixed) {
    constexpr ResidentShape kOther = second_of({.tiles = kTiles, .warps = kWarps});
    if (block >= first_blocks) {
      const int at = block - first_blocks;
      const int group = at % plan.second.row_groups;
      Body<Format::bf16, kOther.tiles, kWarps, kOther.parts, false, false> body(
          plan, plan.second, at / plan.second.row_groups, group * kTokenTile * kOther.tiles,
          memory);
      return body.run();
    }
  }
  const int group = block % plan.first.row_groups;
  Body<kFormat, kTiles, kWarps, 1, kBlocks, kTiles == 1> body(
      plan, plan.first, block / plan.first.row_groups, group * kTokenTile * kTiles, memory);
  body.run();
}

template <Format kFormat, int kTiles, int kWarps, bool kBlocks, bool kMixed>
void launch_resident(ResidentPlan plan, const Launcher& launcher) {
  constexpr ResidentShape kShape = {.format = kFormat, .tiles = kTiles, .warps = kWarps};
  constexpr int kBytes = resident_bytes(kShape, kMixed ? Mix::mixed : Mix::one_format);
  static_assert(kBytes <= 227 * 1024);
  static_assert(kTiles > 1 || kBytes <= 99 * 1024);  // runs everywhere
  const auto kernel = resident_kernel<kFormat, kTiles, kWarps, kBlocks, kMixed>;
  DeviceContext& device = *launcher.device;
  device.allow_shared(kernel, kBytes);
  const int resident =
      device.resident_blocks(kernel, kWarps * 32, kBytes) * launcher.card.multiprocessors;
  plan.first.row_groups = ceil_div(plan.rows, kTokenTile * kTiles);
  plan.second.row_groups = ceil_div(plan.rows, kTokenTile * second_of(kShape).tiles);
  int second = 0;
  if (kMixed) {
    spread(plan.second, 1, resident / 2 / plan.second.row_groups);
    second = plan.second.blocks * plan.second.row_groups;
  }
  spread(plan.first, kWarps / plan.first.slices, (resident - second) / plan.first.row_groups);
  const int blocks = plan.first.blocks * plan.first.row_groups + second;
  launch(kernel, launcher, static_cast<unsigned>(blocks), kWarps * 32, kBytes, plan);
}

template <Format kFormat, bool kBlocks, bool kMixed>
void launch_shape(const ResidentPlan& plan, const LinearPlan& chosen, const Launcher& launcher) {
  const int tiles = chosen.tokens / kTokenTile;
  if constexpr (!kMixed)
    if (chosen.warps == 16 && tiles < 4)
      return tiles == 1 ? launch_resident<kFormat, 1, 16, kBlocks, false>(plan, launcher)
                        : launch_resident<kFormat, 2, 16, kBlocks, false>(plan, launcher);
  if constexpr (!kBlocks && kFormat != Format::bf16)
    if (tiles == 4) return launch_resident<kFormat, 4, 16, false, kMixed>(plan, launcher);
  tiles == 1 ? launch_resident<kFormat, 1, 8, kBlocks, kMixed>(plan, launcher)
             : launch_resident<kFormat, 2, 8, kBlocks, kMixed>(plan, launcher);
}

}  // namespace

void linear_resident(const LinearArgs& args, const LinearPlan& chosen, const Launcher& launcher) {
  CHECK(args.norm.h == nullptr, "a norm of ", args.rows, " rows");
  const ResidentPlan plan = resident_plan(args);
  with_layout(chosen.format, layout_of(args), [&]<Format kFormat, bool kBlocks>() {
    if (chosen.mix == Mix::one_format)
      return launch_shape<kFormat, kBlocks, false>(plan, chosen, launcher);
    if constexpr (kFormat != Format::bf16)
      launch_shape<kFormat, kBlocks, true>(plan, chosen, launcher);
  });
}

}  // namespace nibble::cuda
