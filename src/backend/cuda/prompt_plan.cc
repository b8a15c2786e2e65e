// Sizes and copies.
#include "backend/cuda/prompt_plan.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/workspace.h"

namespace nibble::cuda {
namespace {

constexpr std::string_view kWhat = "the workspace of prompts";

/// Copies a list into `host` at *used and from there to the device.
template <typename T>
void send(const std::vector<T>& list, const DeviceBuffer& to, const PinnedBuffer& host,
          int64_t* used, cudaStream_t stream) {
  const auto bytes = static_cast<int64_t>(list.size() * sizeof(T));
  if (bytes == 0) return;
  CHECK(bytes <= to.bytes() && *used + bytes <= host.bytes(), "a plan of ", bytes, " bytes");
  std::byte* from = host.as<std::byte>() + *used;
  std::memcpy(from, list.data(), static_cast<size_t>(bytes));
  CUDA_CHECK(cudaMemcpyAsync(to.as<std::byte>(), from, static_cast<size_t>(bytes),
                             cudaMemcpyHostToDevice, stream));
  *used += (bytes + 15) / 16 * 16;
}

/// Each sequence of a batch writes a state slot of its own.
int64_t sequences_max(const ModelConfig& config, const PoolSizes& sizes) {
  if (sizes.sequences_max > 0) return std::min(sizes.rows_max, sizes.sequences_max);
  const bool recurs = config.count(LayerKind::delta_net) > 0;
  return recurs ? std::min(sizes.rows_max, sizes.state_slots) : sizes.rows_max;
}

int64_t delta_bytes(const ModelConfig& config, const PoolSizes& sizes) {
  if (config.count(LayerKind::delta_net) == 0) return 0;
  const int64_t chunks = delta_chunks_max(sizes.rows_max, sequences_max(config, sizes));
  return delta_workspace_bytes(delta_shape(config), std::min(chunks, int64_t{kDeltaGroupChunks}));
}

/// Returns how much it needs.
int64_t carve_mlp(const ModelConfig& config, int64_t rows, std::byte* base,
                  PromptMlpMemory& memory) {
  DeviceCarver carver(base);
  if (!config.moe) return 0;
  const int64_t assignments = rows * config.moe->top_k;
  const int64_t places = assignments + rows;
  const int experts = config.moe->experts;
  const int64_t tiles = route_tiles_max(assignments, experts);
  memory.y = carver.take(places * config.hidden * 2);
  memory.router = carver.take(rows * (experts + 1) * 4);
  memory.chosen = carver.take(assignments * 4);
  memory.chosen_weight = carver.take(assignments * 4);
  memory.token = carver.take(assignments * 4);
  memory.position = carver.take(assignments * 4);
  memory.scratch = carver.take(route_scratch_ints(assignments, experts) * 4);
  memory.tiles = carver.take(tiles * int64_t{sizeof(ExpertTile)});
  memory.tile_count = carver.take(4);
  return carver.used();
}

}  // namespace

DeltaShape delta_shape(const ModelConfig& config) {
  const DeltaNetConfig& d = config.delta_net;
  return {.k_heads = d.k_heads,
          .v_heads = d.v_heads,
          .k_dim = d.k_dim,
          .v_dim = d.v_dim,
          .taps = d.conv_kernel};
}

bool PromptPlan::supports(const ModelConfig& config) {
  if (config.hidden % 8 != 0) return false;
  const AttentionConfig& a = config.attention;
  if (config.count(LayerKind::attention) > 0 &&
      !flash_prefill_supports(
          {.q_heads = a.q_heads, .kv_heads = a.kv_heads, .head_dim = a.head_dim}))
    return false;
  if (config.count(LayerKind::delta_net) > 0 && !delta_chunk_supports(delta_shape(config)))
    return false;
  if (!config.moe) return config.dense_width % 64 == 0;
  return config.moe->expert_width % 64 == 0 && config.moe->shared_width % 64 == 0 &&
         config.moe->experts <= kExpertsMax && config.moe->top_k <= kTopKMax;
}

int64_t PromptPlan::shared_bytes(const ModelConfig& config, const PoolSizes& sizes) {
  PromptMlpMemory unused;
  const int64_t mlp = carve_mlp(config, sizes.rows_max, nullptr, unused);
  return std::max(mlp, delta_bytes(config, sizes));
}

Result<void> PromptPlan::reserve(const ModelConfig& config, const PoolSizes& sizes,
                                 const DeviceBuffer& shared, const Architecture& card) {
  prefill_gemm_prepare(card);
  attends_ = config.count(LayerKind::attention) > 0;
  recurs_ = config.count(LayerKind::delta_net) > 0;
  const int64_t sequences = sequences_max(config, sizes);
  const int64_t chunks = delta_chunks_max(sizes.rows_max, sequences);
  int64_t host_bytes = 64;
  const auto list = [&](DeviceBuffer& to, int64_t bytes) -> Result<void> {
    to = TRY(DeviceBuffer::allocate(bytes, kWhat));
    host_bytes += bytes + 16;
    return {};
  };
  if (recurs_) {
    delta_chunk_prepare(card);
    TRY(list(chunks_, chunks * int64_t{sizeof(DeltaChunk)}));
    TRY(list(sequences_, sequences * int64_t{sizeof(DeltaSequence)}));
    TRY(list(runs_, delta_runs_max(chunks, sequences) * int64_t{sizeof(DeltaRun)}));
    delta_workspace_ = DeviceSlice(shared.as<void>(), shared.bytes());
    // Fewer groups are faster: as many chunks in each as there is memory anyway.
    const int64_t each = delta_workspace_bytes(delta_shape(config), 1);
    group_chunks_ =
        static_cast<int32_t>(std::max<int64_t>(shared.bytes() / each, kDeltaGroupChunks));
  }
  if (attends_) {
    flash_prefill_prepare(card);
    TRY(list(tiles_, (chunks + sequences) * int64_t{sizeof(FlashTile)}));
  }
  carve_mlp(config, sizes.rows_max, shared.as<std::byte>(), mlp_);
  const int64_t places = sizes.rows_max * (int64_t{1} + (config.moe ? config.moe->top_k : 0));
  mlp_.act = TRY(DeviceBuffer::allocate(places * act_stride_of(config) * 2, kWhat));
  host_ = TRY(PinnedBuffer::allocate(host_bytes, kWhat));
  return {};
}

void PromptPlan::copy(const Batch& prompts, cudaStream_t stream) {
  int64_t used = 0;
  if (recurs_) {
    const DeltaPlan plan = DeltaPlan::of(prompts, group_chunks_);
    groups_ = plan.groups;
    sequence_count_ = static_cast<int32_t>(plan.sequences.size());
    send(plan.chunks, chunks_, host_, &used, stream);
    send(plan.sequences, sequences_, host_, &used, stream);
    send(plan.runs, runs_, host_, &used, stream);
  }
  if (attends_) {
    const std::vector<FlashTile> tiles = flash_tiles(prompts);
    tile_count_ = static_cast<int32_t>(tiles.size());
    send(tiles, tiles_, host_, &used, stream);
  }
}

}  // namespace nibble::cuda
