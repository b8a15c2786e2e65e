// The device memory of a vision tower beside its weights: the frames that are encoded together, the
// rows of one piece, and the rows of encoded media. Without CUDA headers, so that it is planned
// without a card.
#pragma once

#include "backend/cuda/runtime/device_slice.h"
#include "model/backend.h"
#include "model/config/vision_config.h"

namespace nibble::cuda {

/// Patches of one piece at most: 32 tiles of tokens for each tile of a matrix's rows.
inline constexpr int64_t kVisionPieceMost = 4096;

/// True if the kernels take a tower of these sizes.
bool vision_fits_card(const VisionConfig& config);

struct VisionMemory {
  // All N patches of the workspace have these:
  DeviceSlice x;       // F32 [N][hidden], the residual stream
  DeviceSlice places;  // FramePlace [N]
  DeviceSlice heads;   // BF16 [3][heads][N][padded_head]
  DeviceSlice turns;   // float2 [turn_places][head_dim / 4]
  // One piece of P has these:
  DeviceSlice levels;         // bytes [P][patch_values]
  DeviceSlice values;         // F32 [3][256]
  DeviceSlice narrow;         // BF16: norms, results of attention
  DeviceSlice wide;           // BF16: patches, q k v, what fc1 makes
  DeviceSlice merged;         // F32 [P / merge^2][out]
  DeviceSlice merged_places;  // int32 [P / merge^2]
  DeviceSlice flag;           // int32
  // All media together have these:
  DeviceSlice rows;  // F32 [media rows][out]

  int64_t patches = 0;  // N
  int64_t piece = 0;    // P
  int32_t turn_places = 0;
  int64_t bytes = 0;

  /// Cuts it from `base`; without one it only counts. Nothing where `sizes` has no media rows.
  static VisionMemory cut(const VisionConfig& config, const PoolSizes& sizes, std::byte* base);
};

}  // namespace nibble::cuda
