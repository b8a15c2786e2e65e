// Causal attention of prompt rows over a paged cache that already has their own keys and values:
//   out[t, h] = softmax(q[t, h] K^T head_dim^-0.5) V, times sigmoid(gate[t, h]) if there is a gate,
//   where query heads share KV heads in groups.
//   Oracle: softmax in double arithmetic (checks/flash_check.cu). Bytes moved: q, gate
//   and out once; keys and values of a row's history once for every 64 rows and one or two query
//   heads; bound by 2 T^2 q_heads head_dim FLOPs. No workspace. Any number of rows; sequences need
//   not begin at row 0 of a tile. Tiles of 64 queries and 64 keys lie at absolute positions, keys
//   in ascending order, so a row's bits depend neither on how its prompt was cut nor on other rows.
//   out may not overlap q, gate or the pages. attention_select.h says which kernel runs.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/ops/linear/prefill_order.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"
#include "model/batch.h"

namespace nibble::cuda {

struct FlashShape {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // 64, 128 or 256
};
bool flash_prefill_supports(const FlashShape& shape);

/// 64 tokens of a sequence at a multiple of 64, of which [begin, end) are rows of the batch.
struct FlashTile {
  int32_t row;         // row of the batch of token 0 of the tile; negative if before the first
  int32_t begin, end;  // 0..64
  int32_t index;       // token 0 is 64 * index
  int32_t page_begin;  // of the sequence, into the page table
};

/// Returns the tiles of the prompt sequences of a batch, longest first.
std::vector<FlashTile> flash_tiles(const Batch& batch);

struct FlashPrefill {
  FlashShape shape;
  const FlashTile* tiles = nullptr;  // [tile_count], on the device
  int32_t tile_count = 0;
  const int32_t* pages = nullptr;  // Batch::pages, on the device

  const uint16_t* q = nullptr;  // row t, head h: q + t * q_stride + h * q_head_stride
  int64_t q_stride = 0;         // multiples of 8; q 16-byte aligned
  int64_t q_head_stride = 0;
  KvView kv;                 // its page_stride a multiple of 16
  float value_scale = 1.0F;  // as AttentionArgs

  const uint16_t* gate = nullptr;  // [T, q_heads, head_dim] logits at these strides; null: no gate
  int64_t gate_stride = 0;
  int64_t gate_head_stride = 0;
  uint16_t* out = nullptr;  // [T, q_heads * head_dim] at out_stride, even
  int64_t out_stride = 0;
  ColumnOrder order = ColumnOrder::packed;  // of out
};

/// Loads all kernels and raises their limits of shared memory. Once per device, before the first
/// launch.
void flash_prefill_prepare(const Launcher& launcher);
void flash_prefill(const FlashPrefill& flash, const Launcher& launcher);

}  // namespace nibble::cuda
