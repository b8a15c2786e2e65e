// Experts in generation arithmetic with the inputs held in shared memory. A block walks
// neighbouring tiles of neighbouring experts; an item is one expert with up to 8 of its tokens.
// gate_up: a tile is 8 rows of gate and the same 8 of up. Bound: the bytes of the experts that have
// tokens, each read once (for every 8 of its tokens).
#include "backend/cuda/experts_held.cuh"

namespace nibble::cuda {
namespace {

/// One expert (-1: the shared one) with up to 8 tokens.
struct Item {
  int expert = -1;
  int first = 0;  // of its assignments; shared: its row
  int count = 0;
  int tiles = 0;
  int steps = 0;
};

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
__device__ __forceinline__ Item item_of(const ExpertPlan& plan, int step, int& place) {
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

template <ExpertPart kPart, Format kFormat>
class Walk {
 public:
  using Raw = RawSlice<load_count(kFormat)>;
  static constexpr int kTileRows = kPart == ExpertPart::gate_up ? 8 : kRowTile;

  __device__ __forceinline__ Walk(const ExpertPlan& plan, Shared& shared, uint4* x)
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
    at_ = tile_at<kPart, kFormat>(a_, item.expert, begin * plan_.per_step + local_,
                                  static_cast<int>(threadIdx.x % 32) / 4);
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

  const ExpertPlan& plan_;
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
__global__ void __launch_bounds__(kExpertThreads, blocks_wanted(kPart))
    held_experts_kernel(const __grid_constant__ ExpertPlan plan) {
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

template <ExpertPart kPart, Format kFormat>
void launch_part(const ExpertArgs& args, const Launcher& launcher) {
  const auto kernel = held_experts_kernel<kPart, kFormat>;
  const ExpertPlan plan = plan_of(kPart, args);
  static const bool prepared = [&] {
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    shared_bytes(kHeldWarps)));
    return true;
  }();
  CHECK(prepared, "shared memory of the experts");
  const int bytes = shared_bytes(plan.slices);
  int blocks_each = 1;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, kernel, kExpertThreads,
                                                           static_cast<size_t>(bytes)));
  const int64_t steps = int64_t{plan.shared_steps} * ceil_div(args.rows, kTokenTile) +
                        int64_t{plan.routed_steps} * args.rows * args.top_k;
  const auto blocks = min(steps, int64_t{max(blocks_each, 1)} * launcher.multiprocessors);
  launch(kernel, launcher, static_cast<unsigned>(blocks), kExpertThreads,
         static_cast<size_t>(bytes), plan);
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

void launch_experts_held(ExpertPart part, const ExpertArgs& args, const Launcher& launcher) {
  const bool nvfp4 =
      (args.routed_low.present() ? args.routed_low : args.shared_low).format == Format::nvfp4;
  if (part == ExpertPart::gate_up)
    return nvfp4 ? launch_part<ExpertPart::gate_up, Format::nvfp4>(args, launcher)
                 : launch_part<ExpertPart::gate_up, Format::fp8>(args, launcher);
  nvfp4 ? launch_part<ExpertPart::down, Format::nvfp4>(args, launcher)
        : launch_part<ExpertPart::down, Format::fp8>(args, launcher);
}

}  // namespace nibble::cuda
