// Products in generation arithmetic on compute capability 9.0: weights stream through shared memory
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
constexpr int kTilesMin = 1024;         // fewer: its shared memory costs the neighbours more
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
  cluster_arrive();
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  const int cluster = static_cast<int>(blockIdx.x) >> plan.rank_bits;
  uint8_t* aligned = memory + (-shared_address(memory) & (kAlignment - 1));
  if (cluster >= plan.first.clusters) {
    StreamBody<Format::bf16, false, kN8>(plan, plan.second, cluster - plan.first.clusters, aligned,
                                         barriers)
        .run(warp);
  } else {
    StreamBody<kFormat, kBlocks, kN8>(plan, plan.first, cluster, aligned, barriers).run(warp);
  }
#endif
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

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

/// How tiles go to clusters: the way in which the busiest block has the fewest bytes.
struct Spread {
  int ranks = 0;  // 0: there is none
  int first = 0, second = 0;
};
Spread spread(int slices, int first_tiles, int second_tiles, int multiprocessors) {
  Spread best;
  int64_t least = INT64_MAX;
  for (const int ranks : {2, 4}) {
    const int clusters = std::min(capacity(ranks), multiprocessors / ranks);
    if (clusters < 2 || ceil_div(slices, ranks) > kSlicesMax) continue;
    const int second = std::min(second_tiles, std::max(1, clusters / 8));
    const int first = std::min(first_tiles, clusters - second);
    const int rounds = ceil_div(first_tiles, first);
    // A tile of BF16 has twice the bytes of FP8.
    const int beside = second_tiles > 0 ? 2 * ceil_div(second_tiles, second) : 0;
    const int64_t cost = int64_t{std::max(rounds, beside)} * (kStreamRanksMax / ranks);
    if (cost >= least) continue;
    least = cost;
    best = {ranks, first, second};
  }
  return best;
}

void add(StreamGroup& group, const LinearOutput& out) {
  group.segments[group.count++] = {.out = out, .tile_begin = group.tiles};
  group.tiles += ceil_div(out.weight.rows, kStreamRowTile);
}

StreamPlan plan_of(const LinearArgs& args) {
  StreamPlan plan;
  const Format format = args.outputs[0].weight.format;
  for (int i = 0; i < args.count; ++i) {
    const LinearOutput& out = args.outputs[i];
    add(out.weight.format == format ? plan.first : plan.second, out);
  }
  plan.slices = args.outputs[0].weight.cols / kSliceColumns;
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
  const int stage = std::max(stage_bytes(kFormat), stage_bytes(Format::bf16));
  plan.stages = std::min((std::min(limit, prepared_bytes) - fixed) / stage, kStreamStagesMax);
  CHECK(plan.stages >= 2, "shared memory of ", limit, " bytes");
  Launcher clusters = launcher;
  clusters.cluster = 1 << plan.rank_bits;
  const int blocks = (plan.first.clusters + plan.second.clusters) << plan.rank_bits;
  launch(kernel, clusters, static_cast<unsigned>(blocks), kLinearThreads,
         static_cast<size_t>(fixed + plan.stages * stage), plan);
}

/// Whether a block of 8 n8 tokens has a ring of three stages.
bool fits(const StreamPlan& plan, Format format, int n8, int limit) {
  const int x_bytes = ceil_div(plan.slices, 1 << plan.rank_bits) * kSliceColumns * 2 * 8 * n8;
  const int stage = std::max(stage_bytes(format), stage_bytes(Format::bf16));
  return x_bytes + stream_sum_bytes(n8) + kAlignment + 3 * stage +
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

}  // namespace

bool linear_streams(const LinearArgs& args, const Launcher& launcher) {
  const Format format = args.outputs[0].weight.format;
  if (!launcher.overlap || format == Format::bf16 || capacity(2) == 0) return false;
  for (int i = 0; i < args.count; ++i) {
    const Format other = args.outputs[i].weight.format;
    if (other != format && other != Format::bf16) return false;
  }
  const StreamPlan plan = plan_of(args);
  return plan.first.tiles >= kTilesMin &&
         spread(plan.slices, plan.first.tiles, plan.second.tiles, launcher.multiprocessors).ranks >
             0;
}

void linear_stream(const LinearArgs& args, const Launcher& launcher) {
  CHECK(args.norm.h == nullptr || args.rows == 1, "a norm of ", args.rows, " rows");
  StreamPlan plan = plan_of(args);
  const Spread over =
      spread(plan.slices, plan.first.tiles, plan.second.tiles, launcher.multiprocessors);
  CHECK(over.ranks > 0, plan.slices, " x 256 columns");
  plan.rank_bits = over.ranks == 4 ? 2 : 1;
  plan.first.clusters = over.first;
  plan.second.clusters = over.second;
  plan.rows = args.rows;
  plan.x = args.x;
  plan.x_stride = args.x_stride;
  plan.gather = args.gather;
  plan.norm = args.norm;
  plan.convolve = args.convolve;
  bool blocks = false;
  for (int i = 0; i < args.count; ++i)
    blocks |= args.outputs[i].weight.layout == FactorLayout::block128;
  const Format format = args.outputs[0].weight.format;
  if (format == Format::nvfp4) return launch_format<Format::nvfp4, false>(plan, launcher);
  if (blocks) return launch_format<Format::fp8, true>(plan, launcher);
  launch_format<Format::fp8, false>(plan, launcher);
}

}  // namespace nibble::cuda
