// The sizes of the tower's buffers, each cut once.
#include "backend/cuda/vision/vision_memory.h"

#include <algorithm>

#include "backend/cuda/ops/vision/vision_shapes.h"
#include "backend/cuda/weights/vision_weights.h"

namespace nibble::cuda {

bool vision_fits_card(const VisionConfig& config) {
  return vision_head_fits(config.head_dim()) && config.merged_width() % kVisionPad == 0;
}

VisionMemory VisionMemory::cut(const VisionConfig& config, const PoolSizes& sizes,
                               std::byte* base) {
  constexpr int64_t kF32 = sizeof(float);
  constexpr int64_t kBf16 = sizeof(uint16_t);
  VisionMemory memory;
  if (sizes.media_rows == 0) return memory;
  DeviceCarver carver(base);
  const int64_t n = memory.patches = sizes.vision_rows;
  const int64_t p = memory.piece = std::min(n, kVisionPieceMost);
  const int64_t merged_rows = p / config.merged_patches();
  memory.turn_places = static_cast<int32_t>(std::min<int64_t>(n, kMediaEdgeMax));
  memory.x = carver.take(n * config.hidden * kF32);
  memory.places = carver.take(n * int64_t{sizeof(FramePlace)});
  memory.heads = carver.take(3 * n * config.heads * padded_head(config.head_dim()) * kBf16);
  memory.turns = carver.take(int64_t{memory.turn_places} * (config.head_dim() / 4) * 2 * kF32);
  memory.levels = carver.take(p * config.patch_values());
  memory.values = carver.take(int64_t{VisionConfig::kChannels} * 256 * kF32);
  memory.narrow = carver.take(p * vision_padded(config.hidden) * kBf16);
  const int64_t widest = std::max({vision_padded(config.patch_values()), int64_t{3} * config.hidden,
                                   vision_padded(config.inner), int64_t{config.hidden}});
  memory.wide = carver.take(p * widest * kBf16);
  memory.merged = carver.take(merged_rows * config.out * kF32);
  memory.merged_places = carver.take(merged_rows * int64_t{sizeof(int32_t)});
  memory.flag = carver.take(sizeof(int32_t));
  memory.rows = carver.take(int64_t{sizes.media_rows} * config.out * kF32);
  memory.bytes = carver.used();
  return memory;
}

}  // namespace nibble::cuda
