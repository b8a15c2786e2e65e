// Products of a single row: y = x W^T stored, added to y or convolved, with the norm before them
// whose result x is. The products and sums of linear_resident.cu, bit for bit. Bound: the bytes of
// W.
//
// Nothing of a tile leaves a warp but its sums, and all tiles of a block are finished together: no
// warp waits for another between them, and what their ends need is asked for once.
#include <algorithm>

#include "backend/cuda/ops/linear/linear_resident.h"
#include "backend/cuda/ops/linear/resident_groups.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kRoundTiles = 16;  // finished together, at most
constexpr int kRoundSums = 128;  // sums of a tile and a slice

/// The values that a thread needs to finish its output, loaded while the products are computed.
struct Ahead {
  ResidentAhead output;
  ConvolveAhead convolve;
};

template <int kWarps>
struct RowShared {
  float sums[kRoundSums][kRowTile];
  uint4 x[kWarps * 32];  // the input of each slice, as RowNorm makes it
  float squares[kResidentColumnsMax / 128];
};

/// RowBody has one block's tiles; warp w multiplies slices w and, if there are more than 8, w + 8,
/// or works on tile w / slices of a step.
template <Format kFormat, int kWarps, int kParts, bool kBlocks, bool kConvolves>
class RowBody {
 public:
  using Raw = RawSlice<load_count(kFormat)>;
  static constexpr int kSliceWords = unit_count(kFormat) * 4;
  static_assert(kParts * kSliceWords <= 32);

  __device__ __forceinline__ RowBody(const ResidentPlan& plan, const ResidentGroup& group,
                                     int block, RowShared<kWarps>& shared)
      : plan_(plan), group_(group), shared_(shared) {
    const int warp = threadIdx.x / 32;
    local_ = kParts == 1 ? warp / group.slices : 0;
    slice_ = warp - local_ * group.slices;
    begin_ = first_step(group, block);
    end_ = first_step(group, block + 1);
  }

  __device__ __forceinline__ void run() {
    Raw raw;
    load(begin_, 0, raw);
    if (plan_.norm.h != nullptr) {
      const RowNorm<kFormat, kParts> norm(plan_.norm, slice_, kWarps, group_.slices);
      wait_for_inputs();
      norm.run(shared_.squares, x_of(0), kWarps * kSliceWords);
    } else {
      wait_for_inputs();
      take_input();
    }
    const int round = min(kRoundTiles, kRoundSums / group_.slices) / group_.per_step;
#pragma unroll 1
    for (int from = begin_; from < end_; from += round) {
      const int to = min(from + round, end_);
      const Ahead ahead = look_ahead_at(from, to);
#pragma unroll 1
      for (int step = from; step < to; ++step)
#pragma unroll
        for (int part = 0; part < kParts; ++part) multiply(from, step, part, raw);
      __syncthreads();
      finish(ahead);
      if (to < end_) __syncthreads();
    }
  }

 private:
  __device__ __forceinline__ uint4* x_of(int part) const {
    return shared_.x + (threadIdx.x / 32 + kWarps * part) * kSliceWords;
  }
  __device__ __forceinline__ bool works(int step, int part) const {
    return step < end_ && local_ < group_.per_step && slice_ + kWarps * part < group_.slices &&
           step * group_.per_step + local_ < group_.tiles;
  }
  __device__ __forceinline__ void take_input() const {
    const uint16_t* from =
        plan_.x + (plan_.gather == nullptr ? 0 : plan_.gather[0] * plan_.x_stride);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int slice = slice_ + kWarps * part;
      if (slice < group_.slices && lane < kSliceWords)
        x_of(part)[lane] = pair_inputs<kFormat>(*reinterpret_cast<const uint4*>(
            from + slice * slice_columns(kFormat) + fragment_column<kFormat>(lane / 4, lane % 4)));
    }
    __syncwarp();
  }
  __device__ __forceinline__ void load(int step, int part, Raw& raw) const {
    if (works(step, part))
      load_slice_of<kFormat>(group_, step * group_.per_step + local_, slice_ + kWarps * part, raw);
  }
  __device__ __forceinline__ void multiply(int from, int step, int part, Raw& raw) const {
    const bool mine = works(step, part);
    float acc[1][4] = {};
    if (mine) {
      float factors[2] = {1.0F, 1.0F};
      if constexpr (kBlocks)
        block_factors(group_, step * group_.per_step + local_, slice_ + kWarps * part, factors);
      multiply_resident<kFormat, kBlocks, true>(raw, x_of(part), factors, acc);
    }
    load(part + 1 < kParts ? step : step + 1, (part + 1) % kParts, raw);
    if (!mine || threadIdx.x % 4 != 0) return;
    // Only lanes of the first token go on.
    const int tile = (step - from) * group_.per_step + local_;
    float* sums = shared_.sums[tile * group_.slices + slice_ + kWarps * part];
    const int low = lane_row(static_cast<int>(threadIdx.x % 32) / 4, 0);
    sums[low] = acc[0][0];
    sums[low + 2] = acc[0][2];
  }
  /// Loads what this thread's output of the steps [from, to) needs.
  __device__ __forceinline__ Ahead look_ahead_at(int from, int to) const {
    Ahead ahead;
    const int tile = from * group_.per_step + static_cast<int>(threadIdx.x) / kRowTile;
    if (threadIdx.x >= kRoundTiles * kRowTile || tile >= min(to * group_.per_step, group_.tiles))
      return ahead;
    const LinearSegment& segment = segment_of(group_, tile);
    const int row = (tile - segment.tile_begin) * kRowTile + threadIdx.x % kRowTile;
    ahead.output = look_ahead<kConvolves>(segment.out, row, 0, plan_.convolve, ahead.convolve);
    return ahead;
  }
  __device__ __forceinline__ void finish(const Ahead& ahead) const {
    if (ahead.output.y == nullptr) return;
    const float* from =
        shared_.sums[threadIdx.x / kRowTile * group_.slices] + threadIdx.x % kRowTile;
    float total = 0.0F;
#pragma unroll 8
    for (int slice = 0; slice < group_.slices; ++slice) total += from[slice * kRowTile];
    write_output<kConvolves>(ahead.output, total, plan_.convolve, ahead.convolve);
  }

  const ResidentPlan& plan_;
  const ResidentGroup& group_;
  RowShared<kWarps>& shared_;
  int local_, slice_, begin_, end_;
};

/// The register limit of a thread: a block of 8 warps shares its SM with one of down_sum.
constexpr int registers_max(int warps) { return warps == 8 ? 96 : 128; }

template <Format kFormat, int kWarps, bool kBlocks, bool kConvolves, bool kMixed>
__global__ void __maxnreg__(registers_max(kWarps))
    row_kernel(const __grid_constant__ ResidentPlan plan) {
  __shared__ RowShared<kWarps> shared;
  touch(plan);
  const int block = blockIdx.x;
  if constexpr (kMixed) {
    if (block >= plan.first.blocks) {
      RowBody<Format::bf16, kWarps, kResidentSlicesMax / kWarps, false, false> body(
          plan, plan.second, block - plan.first.blocks, shared);
      return body.run();
    }
  }
  RowBody<kFormat, kWarps, 1, kBlocks, kConvolves> body(plan, plan.first, block, shared);
  body.run();
}

template <Format kFormat, int kWarps, bool kBlocks, bool kConvolves, bool kMixed>
void launch_row(ResidentPlan plan, const Launcher& launcher) {
  const int resident = launcher.card.multiprocessors * (16 / kWarps);
  int second = 0;
  if (kMixed) {
    spread(plan.second, 1, resident / 2);
    second = plan.second.blocks;
  }
  spread(plan.first, kWarps / plan.first.slices, resident - second);
  launch(row_kernel<kFormat, kWarps, kBlocks, kConvolves, kMixed>, launcher,
         static_cast<unsigned>(plan.first.blocks + second), 32 * kWarps, 0, plan);
}

template <Format kFormat, bool kBlocks, bool kConvolves>
void launch_shape(const ResidentPlan& plan, const LinearPlan& chosen, const Launcher& launcher) {
  if (chosen.mix == Mix::mixed) {
    if constexpr (kFormat != Format::bf16)
      launch_row<kFormat, 8, kBlocks, kConvolves, true>(plan, launcher);
  } else if (chosen.warps == 8) {
    launch_row<kFormat, 8, kBlocks, kConvolves, false>(plan, launcher);
  } else {
    launch_row<kFormat, 16, kBlocks, kConvolves, false>(plan, launcher);
  }
}
}  // namespace

void linear_row(const LinearArgs& args, const LinearPlan& chosen, const Launcher& launcher) {
  CHECK(args.rows == 1, args.rows, " rows");
  const ResidentPlan plan = resident_plan(args);
  const bool convolves =
      std::ranges::any_of(std::span(args.outputs, static_cast<size_t>(args.count)),
                          [](const LinearOutput& out) { return out.finish == Finish::convolve; });
  with_layout(chosen.format, layout_of(args), [&]<Format kFormat, bool kBlocks>() {
    convolves ? launch_shape<kFormat, kBlocks, true>(plan, chosen, launcher)
              : launch_shape<kFormat, kBlocks, false>(plan, chosen, launcher);
  });
}

}  // namespace nibble::cuda
