// This file has the limits of the kernels.
#include "backend/cuda/selection.h"

#include <algorithm>

#include "backend/cuda/ops/attention/attention.h"
#include "backend/cuda/ops/delta_net/delta_net.h"
#include "backend/cuda/ops/linear/linear_stream.h"
#include "backend/cuda/ops/norm/norm.h"
#include "backend/cuda/ops/route/route.h"

namespace nibble::cuda {

Architecture architecture_of(DeviceContext& device, const CardLimit& limit) {
  const Device& facts = device.facts();
  Architecture card{.code = facts.code,
                    .multiprocessors = facts.multiprocessors,
                    .shared_bytes = facts.shared_bytes};
  if (limit.shared_bytes > 0) card.shared_bytes = std::min(card.shared_bytes, limit.shared_bytes);
  if (limit.portable_kernels) card.kernels = Architecture::Kernels::portable;
  if (card.has_wgmma()) card.clusters = stream_clusters(device);
  return card;
}

Launcher launcher_of(DeviceContext& device, const CardLimit& limit) {
  return {.device = &device, .stream = device.stream(), .card = architecture_of(device, limit)};
}

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

}  // namespace nibble::cuda
