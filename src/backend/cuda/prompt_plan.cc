// This file copies lists to the device.
#include "backend/cuda/prompt_plan.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/ops/linear/prefill_gemm.h"

namespace nibble::cuda {
namespace {

/// Copies a list into `host` at *used and from there to the device.
template <typename T>
void send(const std::vector<T>& list, const DeviceSlice& to, const PinnedBuffer& host,
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

void prepare_prompt_kernels(const Launcher& launcher) {
  prefill_gemm_prepare(launcher);
  delta_chunk_prepare(launcher);
  flash_prefill_prepare(launcher);
}

Result<void> PromptPlan::reserve(const ModelConfig& config, const Workspace& work) {
  memory_ = work.prompt;
  attends_ = config.count(LayerKind::attention) > 0;
  recurs_ = config.count(LayerKind::delta_net) > 0;
  if (recurs_) {
    delta_workspace_ = work.shared;
    // Fewer groups are faster: as many chunks in each as there is memory anyway.
    const int64_t each = delta_workspace_bytes(delta_shape(config), 1);
    group_chunks_ =
        static_cast<int32_t>(std::max<int64_t>(work.shared.bytes() / each, kDeltaGroupChunks));
  }
  int64_t host_bytes = 64;
  for (const DeviceSlice& list : {memory_.chunks, memory_.sequences, memory_.runs, memory_.tiles})
    host_bytes += list.bytes() + 16;
  host_ = TRY(PinnedBuffer::allocate(host_bytes, "the lists of prompts"));
  return {};
}

void PromptPlan::copy(const Batch& prompts, cudaStream_t stream) {
  int64_t used = 0;
  if (recurs_) {
    const DeltaPlan plan = DeltaPlan::of(prompts, group_chunks_);
    groups_ = plan.groups;
    sequence_count_ = static_cast<int32_t>(plan.sequences.size());
    send(plan.chunks, memory_.chunks, host_, &used, stream);
    send(plan.sequences, memory_.sequences, host_, &used, stream);
    send(plan.runs, memory_.runs, host_, &used, stream);
  }
  if (attends_) {
    const std::vector<FlashTile> tiles = flash_tiles(prompts);
    tile_count_ = static_cast<int32_t>(tiles.size());
    send(tiles, memory_.tiles, host_, &used, stream);
  }
}

}  // namespace nibble::cuda
