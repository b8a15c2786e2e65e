// Limits of the kernels, and the ledger against the driver's word.
#include "backend/cuda/card.h"

#include <algorithm>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/kernels.h"

namespace nibble::cuda {

Result<void> refuse_oversized(const ModelConfig& config) {
  const auto at_most = [](std::string_view what, int limit, int found) -> Result<void> {
    if (found <= limit) return {};
    return make_error(ErrorCode::unsupported, {.what = concat(what, " on the cuda backend"),
                                               .expected = concat("at most ", limit),
                                               .found = concat(found),
                                               .advice = "use --backend cpu"});
  };
  TRY(at_most("hidden size", kHiddenMax, config.hidden));
  if (config.moe) {
    TRY(at_most("experts", kRouteExpertsMax, config.moe->experts));
    TRY(at_most("experts per token", kRouteTopKMax, config.moe->top_k));
  }
  if (config.count(LayerKind::attention) > 0)
    TRY(at_most("head_dim", kHeadDimMax, config.attention.head_dim));
  if (config.count(LayerKind::delta_net) == 0) return {};
  TRY(at_most("key dimensions of the delta net", kDeltaDimMax, config.delta_net.k_dim));
  TRY(at_most("value dimensions of the delta net", kDeltaDimMax, config.delta_net.v_dim));
  return at_most("convolution taps", kConvTapsMax, config.delta_net.conv_kernel);
}

CudaMemory card_memory(const Device& device, const CardLimit& limit, int64_t weight_bytes) {
  // What recorded passes, and the driver's rounding, add on an H200.
  constexpr int64_t kRecordedBytes = int64_t{64} << 20;
  size_t free_now = 0;
  size_t all = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_now, &all));
  const bool limited = limit.memory_bytes > 0;
  CudaMemory memory{
      .card = limited ? std::min(limit.memory_bytes, device.memory_bytes) : device.memory_bytes,
      .free = static_cast<int64_t>(free_now),
      .weights = weight_bytes,
      .driver = device.memory_bytes - device.free_bytes,
      .recorded = kRecordedBytes,
      .allocated = device_ledger().used_bytes,
      .allocations = device_ledger().allocations};
  if (limited) memory.free = std::min(memory.free, memory.card - memory.driver - memory.allocated);
  return memory;
}

}  // namespace nibble::cuda
