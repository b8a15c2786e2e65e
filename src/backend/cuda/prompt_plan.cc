// Sizes and copies.
#include "backend/cuda/prompt_plan.h"

#include <algorithm>
#include <cstring>

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

Result<void> PromptPlan::reserve(const ModelConfig& config, const PoolSizes& sizes,
                                 int64_t act_stride, const CardLimit& card) {
  CUDA_CHECK(PrefillDevice::read(0, &device_));
  if (card.shared_bytes > 0)
    device_.shared_bytes_max = std::min(device_.shared_bytes_max, card.shared_bytes);
  if (card.portable_kernels) unit_ = MatrixUnit::portable;
  CUDA_CHECK(prefill_gemm_prepare(device_));
  attends_ = config.count(LayerKind::attention) > 0;
  recurs_ = config.count(LayerKind::delta_net) > 0;
  const int64_t rows = sizes.rows_max;
  // Each sequence of a batch writes a state slot of its own.
  const int64_t sequences = recurs_ ? std::min(rows, int64_t{sizes.state_slots}) : rows;
  int64_t host_bytes = 64;
  if (recurs_) {
    CUDA_CHECK(delta_chunk_prepare(device_.shared_bytes_max));
    const int64_t chunks = delta_chunks_max(rows, sequences);
    chunks_ = TRY(DeviceBuffer::allocate(chunks * int64_t{sizeof(DeltaChunk)}, kWhat));
    sequences_ = TRY(DeviceBuffer::allocate(rows * int64_t{sizeof(DeltaSequence)}, kWhat));
    delta_workspace_ =
        TRY(DeviceBuffer::allocate(delta_workspace_bytes(delta_shape(config), chunks), kWhat));
    host_bytes += chunks_.bytes() + sequences_.bytes() + 64;
  }
  if (attends_) {
    CUDA_CHECK(flash_prefill_prepare(device_.shared_bytes_max));
    const int64_t tiles = delta_chunks_max(rows, sequences) + sequences;
    tiles_ = TRY(DeviceBuffer::allocate(tiles * int64_t{sizeof(FlashTile)}, kWhat));
    host_bytes += tiles_.bytes();
  }
  host_ = TRY(PinnedBuffer::allocate(host_bytes, kWhat));
  return reserve_mlp(config, rows, act_stride);
}

Result<void> PromptPlan::reserve_mlp(const ModelConfig& config, int64_t rows, int64_t act_stride) {
  const int64_t top_k = config.moe ? config.moe->top_k : 0;
  const int64_t assignments = rows * top_k;
  const int64_t places = assignments + rows;
  mlp_.act = TRY(DeviceBuffer::allocate(places * act_stride * 2, kWhat));
  if (!config.moe) return {};
  const int experts = config.moe->experts;
  const int64_t tiles = route_tiles_max(assignments, experts);
  mlp_.y = TRY(DeviceBuffer::allocate(places * config.hidden * 2, kWhat));
  mlp_.router = TRY(DeviceBuffer::allocate(rows * (experts + 1) * 4, kWhat));
  mlp_.chosen = TRY(DeviceBuffer::allocate(assignments * 4, kWhat));
  mlp_.chosen_weight = TRY(DeviceBuffer::allocate(assignments * 4, kWhat));
  mlp_.token = TRY(DeviceBuffer::allocate(assignments * 4, kWhat));
  mlp_.position = TRY(DeviceBuffer::allocate(assignments * 4, kWhat));
  mlp_.scratch = TRY(DeviceBuffer::allocate(route_scratch_ints(assignments, experts) * 4, kWhat));
  mlp_.tiles = TRY(DeviceBuffer::allocate(tiles * int64_t{sizeof(ExpertTile)}, kWhat));
  mlp_.tile_count = TRY(DeviceBuffer::allocate(4, kWhat));
  return {};
}

void PromptPlan::copy(const Batch& prompts, cudaStream_t stream) {
  int64_t used = 0;
  if (recurs_) {
    const DeltaPlan plan = DeltaPlan::of(prompts);
    chunk_count_ = static_cast<int32_t>(plan.chunks.size());
    sequence_count_ = static_cast<int32_t>(plan.sequences.size());
    send(plan.chunks, chunks_, host_, &used, stream);
    send(plan.sequences, sequences_, host_, &used, stream);
  }
  if (attends_) {
    const std::vector<FlashTile> tiles = flash_tiles(prompts);
    tile_count_ = static_cast<int32_t>(tiles.size());
    send(tiles, tiles_, host_, &used, stream);
  }
}

}  // namespace nibble::cuda
