// This file copies them.
#include "backend/cuda/ops/attention/rope.h"

#include <vector>

#include "model/config/rope.h"

namespace nibble::cuda {

Result<DeviceRope> upload_rope(DeviceContext& device, const ModelConfig& config) {
  DeviceRope rope;
  if (config.count(LayerKind::attention) == 0) return rope;
  const RopeTable table = make_rope_table(config.attention.rope);
  const auto pairs = static_cast<size_t>(table.pairs());
  rope.memory =
      TRY(DeviceBuffer::allocate(device, static_cast<int64_t>(pairs * 12), "rotary tables"));
  auto* frequencies = rope.memory.as<double>();
  auto* axes = reinterpret_cast<int32_t*>(frequencies + pairs);
  const std::vector<int32_t> wide(table.axes.begin(), table.axes.end());
  copy_to_device(frequencies, table.inverse_frequencies.data(),
                 static_cast<int64_t>(pairs * sizeof(double)));
  copy_to_device(axes, wide.data(), static_cast<int64_t>(pairs * sizeof(int32_t)));
  rope.view = {.inverse_frequencies = frequencies,
               .axes = axes,
               .pairs = table.pairs(),
               .scale = static_cast<float>(table.scale)};
  return rope;
}

}  // namespace nibble::cuda
