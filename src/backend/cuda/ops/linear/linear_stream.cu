// The head, matrices of rows too long for shared memory, and gate and up of a dense MLP, in
// generation arithmetic on compute capability 9.0: weights stream through shared memory into wgmma,
// each widened once for up to 64 tokens (linear_stream.cuh). A row has the same bits at any number
// of tokens: how columns are shared out depends on the shape and the card, and the order of the
// sums on nothing else. Bound: the bytes of W, of many tokens what widening them costs.
#include <algorithm>

#include "backend/cuda/ops/linear/linear_stream.cuh"
#include "backend/cuda/ops/linear/linear_stream.h"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

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
    barrier_init_fence();
    barrier_expect(shared_address(&barriers.sums_full), stream_sum_bytes(kN8, plan.rank_bits));
  }
  __syncthreads();
  show_at_cluster();  // tells the cluster that the barriers are initialised
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32, 0);
  const int cluster = static_cast<int>(blockIdx.x) >> plan.rank_bits;
  uint8_t* aligned = memory + (-shared_address(memory) & (kStreamAlignment - 1));
  StreamBody<kKind, kFormat, kBlocks, kN8>(plan, cluster, aligned, barriers).run(warp);
#endif
}

StreamPlan spread_plan(StreamPlan plan, const LinearPlan& chosen) {
  plan.slices = plan.segments[0].out.weight.cols / kStageColumns;
  plan.clusters = chosen.clusters;
  plan.rank_bits = chosen.cluster == 8 ? 3 : chosen.cluster == 4 ? 2 : 1;
  plan.stages = chosen.stages;
  plan.x_bytes = stream_input_bytes(plan.slices, plan.rank_bits, chosen.tokens / 8);
  return plan;
}

template <StreamKind kKind, Format kFormat, bool kBlocks, int kN8>
void launch_stream(const StreamPlan& plan, const LinearPlan& chosen, const Launcher& launcher) {
  const auto kernel = stream_kernel<kKind, kFormat, kBlocks, kN8>;
  launcher.device->allow_shared(kernel,
                                launcher.device->facts().shared_bytes - kStreamBarrierBytes);
  Launcher clusters = launcher;
  clusters.cluster = chosen.cluster;
  launch(kernel, clusters, static_cast<unsigned>(chosen.clusters * chosen.cluster), kLinearThreads,
         static_cast<size_t>(chosen.shared_bytes), plan);
}

template <StreamKind kKind>
void launch_kind(const StreamPlan& plan, const LinearPlan& chosen, const Launcher& launcher) {
  const DeviceLinear& w = plan.segments[0].out.weight;
  with_codes(w.format, w.layout, [&]<Format kFormat, bool kBlocks>() {
    with_value<8, 16, 32, 64>(chosen.tokens, [&]<int kTokens>() {
      launch_stream<kKind, kFormat, kBlocks, kTokens / 8>(plan, chosen, launcher);
    });
  });
}

}  // namespace

std::array<int32_t, 3> stream_clusters(DeviceContext& device) {
  std::array<int32_t, 3> found = {};
  const auto kernel = stream_kernel<StreamKind::head, Format::fp8, false, 8>;
  cudaFuncAttributes attributes;
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  const int bytes = device.facts().shared_bytes - static_cast<int>(attributes.sharedSizeBytes);
  device.allow_shared(kernel, bytes);
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(kClusterSizes[i]), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = static_cast<unsigned>(kClusterSizes[i]);
    config.blockDim = static_cast<unsigned>(kLinearThreads);
    config.dynamicSmemBytes = static_cast<size_t>(bytes);
    config.attrs = &cluster;
    config.numAttrs = 1;
    CUDA_CHECK(cudaOccupancyMaxActiveClusters(&found[i], kernel, &config));
  }
  return found;
}

void linear_stream(const LinearArgs& args, const LinearPlan& chosen, const Launcher& launcher) {
  StreamPlan plan{.count = args.count,
                  .rows = args.rows,
                  .x = args.x,
                  .x_stride = args.x_stride,
                  .gather = args.gather};
  for (int i = 0; i < args.count; ++i) {
    plan.segments[i] = {.out = args.outputs[i], .tile_begin = plan.tiles};
    plan.tiles += ceil_div(args.outputs[i].weight.rows, kStreamRowTile);
  }
  plan = spread_plan(plan, chosen);
  if (chosen.kind == StreamKind::head) return launch_kind<StreamKind::head>(plan, chosen, launcher);
  launch_kind<StreamKind::longs>(plan, chosen, launcher);
}

void gate_up_stream(const ExpertArgs& args, const LinearPlan& chosen, const Launcher& launcher) {
  StreamPlan plan{.count = 2,
                  .act = args.act + args.shared_begin * args.act_stride,
                  .act_stride = args.act_stride,
                  .rows = args.rows,
                  .tiles = ceil_div(args.shared_low.rows, kStreamRowTile / 2),
                  .x = args.x,
                  .x_stride = args.x_stride};
  plan.segments[0].out.weight = args.shared_low;
  plan.segments[1].out.weight = args.shared_high;
  launch_kind<StreamKind::gate_up>(spread_plan(plan, chosen), chosen, launcher);
}

}  // namespace nibble::cuda
