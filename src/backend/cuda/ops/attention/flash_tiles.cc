// This file makes the tiles of prompts, longest first.
#include <algorithm>

#include "backend/cuda/ops/attention/flash_prefill.h"

namespace nibble::cuda {
namespace {

constexpr int32_t kTileTokens = 64;

}  // namespace

bool flash_prefill_supports(const FlashShape& shape) {
  return (shape.head_dim == 64 || shape.head_dim == 128 || shape.head_dim == 256) &&
         shape.kv_heads > 0 && shape.q_heads % shape.kv_heads == 0;
}

std::vector<FlashTile> flash_tiles(const Batch& batch) {
  std::vector<FlashTile> tiles;
  for (const BatchSequence& sequence : batch.sequences) {
    if (sequence.arithmetic != Arithmetic::prompt) continue;
    const int32_t kv_end = sequence.kv_begin + sequence.row_count;
    for (int32_t index = sequence.kv_begin / kTileTokens; index * kTileTokens < kv_end; ++index) {
      const int32_t first = index * kTileTokens;
      tiles.push_back({.row = sequence.row_begin + first - sequence.kv_begin,
                       .begin = std::max(sequence.kv_begin - first, 0),
                       .end = std::min(kv_end - first, kTileTokens),
                       .index = index,
                       .page_begin = sequence.page_begin});
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const FlashTile& a, const FlashTile& b) { return a.index > b.index; });
  return tiles;
}

}  // namespace nibble::cuda
