// The head in generation arithmetic on compute capability 9.0: weights stream through shared memory
// into wgmma, each widened once for up to 64 tokens (linear_stream.cuh). A row has the same bits at
// any number of tokens: how columns are shared out depends on the shape and the card, and the order
// of the sums on nothing else. Bound: the bytes of W.
#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/linear_stream.cuh"
#include "backend/cuda/linear_stream.h"

namespace nibble::cuda {
namespace {

constexpr int kSlicesMax = 5;            // of 256 columns, of one block
constexpr int kTilesMin = 1024;          // fewer: its shared memory costs the neighbours more
constexpr int kSmallBytes = 112 * 1024;  // of a block beside which another kernel's fits
constexpr int kAlignment = 1024;

template <Format kFormat, bool kBlocks, int kN8>
__global__ void __launch_bounds__(kLinearThreads, 1)
    stream_kernel(const __grid_constant__ StreamPlan plan) {
#ifdef NIBBLE_HAS_WGMMA
  touch(plan);
  extern __shared__ uint8_t memory[];
  __shared__ StreamBarriers barriers;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStreamStagesMax; ++s) {
      barrier_init(shared_address(&barriers.full[s]), kStreamProducers * 32);
      barrier_init(shared_address(&barriers.empty[s]), kStreamMultipliers);
    }
    barrier_init(shared_address(&barriers.sums_full), 1);
    barrier_init(shared_address(&barriers.sums_empty), 1 << plan.rank_bits);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    expect_bytes(shared_address(&barriers.sums_full), stream_sum_bytes(kN8));
  }
  __syncthreads();
  show_at_cluster();  // its barriers are there
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  const int cluster = static_cast<int>(blockIdx.x) >> plan.rank_bits;
  uint8_t* aligned = memory + (-shared_address(memory) & (kAlignment - 1));
  StreamBody<kFormat, kBlocks, kN8>(plan, cluster, aligned, barriers).run(warp);
#endif
}

/// Clusters of `ranks` blocks that the card runs at once, a block a multiprocessor; 0: none, or the
/// program has no code with wgmma for it.
int capacity(int ranks) {
  static const auto counts = [] {
    struct Counts {
      int of[kStreamRanksMax + 1] = {};
    } found;
    const auto kernel = stream_kernel<Format::fp8, false, 8>;
    cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    if (attributes.binaryVersion / 10 != 9 || attributes.ptxVersion / 10 != 9) return found;
    int bytes = shared_limit({}) - static_cast<int>(attributes.sharedSizeBytes);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    for (const int ranks : {2, 4}) {
      cudaLaunchAttribute cluster;
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim = {static_cast<unsigned>(ranks), 1, 1};
      cudaLaunchConfig_t config = {};
      config.gridDim = static_cast<unsigned>(ranks);
      config.blockDim = static_cast<unsigned>(kLinearThreads);
      config.dynamicSmemBytes = static_cast<size_t>(bytes);
      config.attrs = &cluster;
      config.numAttrs = 1;
      CUDA_CHECK(cudaOccupancyMaxActiveClusters(&found.of[ranks], kernel, &config));
    }
    return found;
  }();
  return counts.of[ranks];
}

/// How many blocks a cluster has, and clusters a launch: so that the busiest block has the fewest
/// bytes.
struct Spread {
  int ranks = 0;  // 0: there is none
  int clusters = 0;
};
Spread spread(int slices, int tiles, int multiprocessors) {
  Spread best;
  int64_t least = INT64_MAX;
  for (const int ranks : {2, 4}) {
    const int most = std::min(capacity(ranks), multiprocessors / ranks);
    if (most < 2 || ceil_div(slices, ranks) > kSlicesMax) continue;
    const int clusters = std::min(tiles, most);
    const int64_t cost = int64_t{ceil_div(tiles, clusters)} * (kStreamRanksMax / ranks);
    if (cost >= least) continue;
    least = cost;
    best = {ranks, clusters};
  }
  return best;
}

StreamPlan plan_of(const LinearArgs& args, const Launcher& launcher) {
  const LinearOutput& out = args.outputs[0];
  StreamPlan plan{.weight = out.weight,
                  .y = out.y,
                  .y_stride = out.y_stride,
                  .rows = args.rows,
                  .tiles = ceil_div(out.weight.rows, kStreamRowTile),
                  .slices = out.weight.cols / kSliceColumns,
                  .x = args.x,
                  .x_stride = args.x_stride,
                  .gather = args.gather};
  const Spread over = spread(plan.slices, plan.tiles, launcher.multiprocessors);
  plan.clusters = over.clusters;
  plan.rank_bits = over.ranks == 4 ? 2 : 1;
  return plan;
}

template <Format kFormat, bool kBlocks, int kN8>
void launch_stream(StreamPlan plan, int limit, const Launcher& launcher) {
  const auto kernel = stream_kernel<kFormat, kBlocks, kN8>;
  static const int prepared_bytes = [&] {
    cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    const int bytes = shared_limit({}) - static_cast<int>(attributes.sharedSizeBytes);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    return bytes;
  }();
  plan.x_bytes = ceil_div(plan.slices, 1 << plan.rank_bits) * kSliceColumns * 2 * 8 * kN8;
  const int fixed = plan.x_bytes + stream_sum_bytes(kN8) + kAlignment;
  const int stage = stage_bytes(kFormat);
  plan.stages = std::min((std::min(limit, prepared_bytes) - fixed) / stage, kStreamStagesMax);
  CHECK(plan.stages >= 2, "shared memory of ", limit, " bytes");
  Launcher clusters = launcher;
  clusters.cluster = 1 << plan.rank_bits;
  const int blocks = plan.clusters << plan.rank_bits;
  launch(kernel, clusters, static_cast<unsigned>(blocks), kLinearThreads,
         static_cast<size_t>(fixed + plan.stages * stage), plan);
}

/// Whether a block of 8 n8 tokens has a ring of three stages.
bool fits(const StreamPlan& plan, Format format, int n8, int limit) {
  const int x_bytes = ceil_div(plan.slices, 1 << plan.rank_bits) * kSliceColumns * 2 * 8 * n8;
  return x_bytes + stream_sum_bytes(n8) + kAlignment + 3 * stage_bytes(format) +
             static_cast<int>(sizeof(StreamBarriers)) <=
         limit;
}

template <Format kFormat, bool kBlocks>
void launch_format(const StreamPlan& plan, const Launcher& launcher) {
  const int limit = shared_limit(launcher);
  const auto takes = [&](int n8) { return plan.rows > 4 * n8 && fits(plan, kFormat, n8, limit); };
  if (takes(8)) return launch_stream<kFormat, kBlocks, 8>(plan, limit, launcher);
  if (takes(4)) return launch_stream<kFormat, kBlocks, 4>(plan, limit, launcher);
  if (takes(2)) return launch_stream<kFormat, kBlocks, 2>(plan, limit, launcher);
  launch_stream<kFormat, kBlocks, 1>(plan, std::min(limit, kSmallBytes), launcher);
}

/// One matrix of codes whose products are stored as they are.
bool streamable(const LinearArgs& args) {
  const LinearOutput& out = args.outputs[0];
  return args.count == 1 && out.weight.format != Format::bf16 && out.finish == Finish::store &&
         args.norm.h == nullptr;
}

}  // namespace

bool linear_streams(const LinearArgs& args, const Launcher& launcher) {
  if (!launcher.overlap || !streamable(args) || capacity(2) == 0) return false;
  const StreamPlan plan = plan_of(args, launcher);
  return plan.tiles >= kTilesMin && plan.clusters > 0;
}

void linear_stream(const LinearArgs& args, const Launcher& launcher) {
  const StreamPlan plan = plan_of(args, launcher);
  const DeviceLinear& w = plan.weight;
  CHECK(streamable(args) && plan.clusters > 0, args.count, " outputs, ", w.rows, " x ", w.cols);
  if (w.format == Format::nvfp4) return launch_format<Format::nvfp4, false>(plan, launcher);
  if (w.layout == FactorLayout::block128) return launch_format<Format::fp8, true>(plan, launcher);
  launch_format<Format::fp8, false>(plan, launcher);
}

}  // namespace nibble::cuda
