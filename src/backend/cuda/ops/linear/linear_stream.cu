// The head, matrices of rows too long to be held, and gate and up of a dense MLP, in generation
// arithmetic on compute capability 9.0: weights stream through shared memory into wgmma, each
// widened once for up to 64 tokens (linear_stream.cuh). A row has the same bits at any number of
// tokens: how columns are shared out depends on the shape and the card, and the order of the sums
// on nothing else. Bound: the bytes of W, of many tokens what widening them costs.
#include <algorithm>

#include "backend/cuda/ops/linear/linear_stream.cuh"
#include "backend/cuda/ops/linear/linear_stream.h"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

/// Of 256 columns, of one block: so that 64 tokens of a head fit, or 32 of long rows.
constexpr int slices_max(StreamKind kind) { return kind == StreamKind::head ? 5 : 9; }
constexpr int kTilesMin = 1024;          // of a head: fewer cost their neighbours shared memory
constexpr int kLongTilesMin = 48;        // of longer rows, and of gate and up
constexpr int kSmallBytes = 112 * 1024;  // of a block beside which another kernel's fits
constexpr int kAlignment = 1024;

template <StreamKind kKind, Format kFormat, bool kBlocks, int kN8>
__global__ void __launch_bounds__(kLinearThreads, 1)
    stream_kernel(const __grid_constant__ StreamPlan plan) {
#ifdef NIBBLE_HAS_WGMMA
  touch(plan);
  extern __shared__ uint8_t memory[];
  __shared__ StreamBarriers barriers;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStreamStagesMax; ++s) {
      barrier_init(shared_address(&barriers.full[s]), kStreamProducers * 32);
      barrier_init(shared_address(&barriers.empty[s]), kStreamMultipliers * 32);
    }
    barrier_init(shared_address(&barriers.sums_full), 1);
    barrier_init(shared_address(&barriers.sums_empty), 1 << min(plan.rank_bits, kStreamFinishBits));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    expect_bytes(shared_address(&barriers.sums_full), stream_sum_bytes(kN8, plan.rank_bits));
  }
  __syncthreads();
  show_at_cluster();  // its barriers are there
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  const int cluster = static_cast<int>(blockIdx.x) >> plan.rank_bits;
  uint8_t* aligned = memory + (-shared_address(memory) & (kAlignment - 1));
  StreamBody<kKind, kFormat, kBlocks, kN8>(plan, cluster, aligned, barriers).run(warp);
#endif
}

/// Clusters of `ranks` blocks that the card runs at once, a block a multiprocessor; 0: none, or the
/// program has no code with wgmma for it.
int capacity(int ranks) {
  struct Counts {
    int of[stream_ranks_max(StreamKind::longs) + 1] = {};
  };
  static PerDevice<Counts> known;
  const auto count = [] {
    Counts found;
    const auto kernel = stream_kernel<StreamKind::head, Format::fp8, false, 8>;
    cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    if (attributes.binaryVersion / 10 != 9 || attributes.ptxVersion / 10 != 9) return found;
    int bytes = shared_limit({}) - static_cast<int>(attributes.sharedSizeBytes);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    for (const int ranks : {2, 4, 8}) {
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
  };
  return known.get(count).of[ranks];
}

/// How many blocks a cluster has, and clusters a launch: so that the busiest block has the fewest
/// bytes.
struct Spread {
  int ranks = 0;  // 0: there is none
  int clusters = 0;
};
Spread spread(StreamKind kind, int slices, int tiles, int multiprocessors) {
  Spread best;
  int64_t least = INT64_MAX;
  for (const int ranks : {2, 4, 8}) {
    if (ranks > stream_ranks_max(kind) || (kind != StreamKind::head && ranks == 2)) continue;
    const int most = std::min(capacity(ranks), multiprocessors / ranks);
    if (most < 2 || ceil_div(slices, ranks) > slices_max(kind)) continue;
    const int clusters = std::min(tiles, most);
    const int64_t cost = int64_t{ceil_div(tiles, clusters)} * ceil_div(slices, ranks);
    if (cost >= least) continue;
    least = cost;
    best = {ranks, clusters};
  }
  return best;
}

/// Over which blocks; all else is in `plan`.
StreamPlan spread_plan(StreamKind kind, StreamPlan plan, const Launcher& launcher) {
  plan.slices = plan.segments[0].out.weight.cols / kSliceColumns;
  const Spread over = spread(kind, plan.slices, plan.tiles, launcher.multiprocessors);
  plan.clusters = over.clusters;
  plan.rank_bits = over.ranks == 8 ? 3 : over.ranks == 4 ? 2 : 1;
  return plan;
}
StreamKind kind_of(const LinearArgs& args) {
  return held(args.outputs[0].weight) ? StreamKind::head : StreamKind::longs;
}
StreamPlan plan_of(const LinearArgs& args, const Launcher& launcher) {
  StreamPlan plan{.count = args.count,
                  .rows = args.rows,
                  .x = args.x,
                  .x_stride = args.x_stride,
                  .gather = args.gather};
  for (int i = 0; i < args.count; ++i) {
    plan.segments[i] = {.out = args.outputs[i], .tile_begin = plan.tiles};
    plan.tiles += ceil_div(args.outputs[i].weight.rows, kStreamRowTile);
  }
  return spread_plan(kind_of(args), plan, launcher);
}
StreamPlan plan_of(const ExpertArgs& args, const Launcher& launcher) {
  StreamPlan plan{.count = 2,
                  .act = args.act + args.shared_begin * args.act_stride,
                  .act_stride = args.act_stride,
                  .rows = args.rows,
                  .tiles = ceil_div(args.shared_low.rows, kStreamRowTile / 2),
                  .x = args.x,
                  .x_stride = args.x_stride};
  plan.segments[0].out.weight = args.shared_low;
  plan.segments[1].out.weight = args.shared_high;
  return spread_plan(StreamKind::gate_up, plan, launcher);
}

int x_bytes(const StreamPlan& plan, int n8) {
  return ceil_div(plan.slices, 1 << plan.rank_bits) * kSliceColumns * 2 * 8 * n8;
}

template <StreamKind kKind, Format kFormat, bool kBlocks, int kN8>
void launch_stream(StreamPlan plan, int limit, const Launcher& launcher) {
  const auto kernel = stream_kernel<kKind, kFormat, kBlocks, kN8>;
  static PerDevice<int> prepared;
  const int prepared_bytes = prepared.get([&] {
    cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    const int bytes = shared_limit({}) - static_cast<int>(attributes.sharedSizeBytes);
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    return bytes;
  });
  plan.x_bytes = x_bytes(plan, kN8);
  const int fixed = plan.x_bytes + stream_sum_bytes(kN8, plan.rank_bits) + kAlignment;
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
  return x_bytes(plan, n8) + stream_sum_bytes(n8, plan.rank_bits) + kAlignment +
             3 * stage_bytes(format) + static_cast<int>(sizeof(StreamBarriers)) <=
         limit;
}

template <StreamKind kKind, Format kFormat, bool kBlocks>
void launch_format(const StreamPlan& plan, const Launcher& launcher) {
  const int limit = shared_limit(launcher);
  const auto takes = [&](int n8) { return plan.rows > 4 * n8 && fits(plan, kFormat, n8, limit); };
  if (takes(8)) return launch_stream<kKind, kFormat, kBlocks, 8>(plan, limit, launcher);
  if (takes(4)) return launch_stream<kKind, kFormat, kBlocks, 4>(plan, limit, launcher);
  if (takes(2)) return launch_stream<kKind, kFormat, kBlocks, 2>(plan, limit, launcher);
  launch_stream<kKind, kFormat, kBlocks, 1>(plan, std::min(limit, kSmallBytes), launcher);
}
template <StreamKind kKind>
void launch_kind(const StreamPlan& plan, const Launcher& launcher) {
  const DeviceLinear& w = plan.segments[0].out.weight;
  if (w.format == Format::nvfp4) return launch_format<kKind, Format::nvfp4, false>(plan, launcher);
  if (w.layout == FactorLayout::block128)
    return launch_format<kKind, Format::fp8, true>(plan, launcher);
  launch_format<kKind, Format::fp8, false>(plan, launcher);
}

bool alike(const DeviceLinear& a, const DeviceLinear& b) {
  return a.format == b.format && a.cols == b.cols &&
         (a.layout == FactorLayout::block128) == (b.layout == FactorLayout::block128);
}
/// Matrices of codes: a head, whose products are stored as they are, or those of long rows.
bool streamable(const LinearArgs& args) {
  const LinearOutput* const end = args.outputs + args.count;
  const LinearOutput& first = args.outputs[0];
  if (first.weight.format == Format::bf16 || args.norm.h != nullptr) return false;
  if (kind_of(args) == StreamKind::head) return args.count == 1 && first.finish == Finish::store;
  return std::all_of(args.outputs, end, [&](const LinearOutput& out) {
    return alike(first.weight, out.weight) && out.finish != Finish::convolve;
  });
}
bool streamable(const ExpertArgs& args) {
  const DeviceLinear& gate = args.shared_low;
  return gate.present() && !args.routed_low.present() && args.norm.h == nullptr &&
         gate.format != Format::bf16 && alike(gate, args.shared_high);
}

}  // namespace

bool linear_streams(const LinearArgs& args, const Launcher& launcher) {
  if (!launcher.overlap || !streamable(args) || capacity(2) == 0) return false;
  const StreamPlan plan = plan_of(args, launcher);
  const int least = kind_of(args) == StreamKind::head ? kTilesMin : kLongTilesMin;
  return plan.tiles >= least && plan.clusters > 0;
}

void linear_stream(const LinearArgs& args, const Launcher& launcher) {
  const StreamPlan plan = plan_of(args, launcher);
  const DeviceLinear& w = args.outputs[0].weight;
  CHECK(streamable(args) && plan.clusters > 0, args.count, " outputs, ", w.rows, " x ", w.cols);
  if (kind_of(args) == StreamKind::head) return launch_kind<StreamKind::head>(plan, launcher);
  launch_kind<StreamKind::longs>(plan, launcher);
}

bool gate_up_streams(const ExpertArgs& args, const Launcher& launcher) {
  if (!launcher.overlap || !streamable(args) || capacity(2) == 0) return false;
  const StreamPlan plan = plan_of(args, launcher);
  return plan.tiles >= kLongTilesMin && plan.clusters > 0;
}

void gate_up_stream(const ExpertArgs& args, const Launcher& launcher) {
  launch_kind<StreamKind::gate_up>(plan_of(args, launcher), launcher);
}

}  // namespace nibble::cuda
