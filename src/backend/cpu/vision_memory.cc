// The walk over the buffers.
#include "backend/cpu/vision_memory.h"

#include <numeric>

#include "backend/cpu/memory_maker.h"

namespace nibble::cpu {
namespace {

void make_all(const VisionConfig& v, const PoolSizes& sizes, MemoryMaker& maker,
              VisionMemory& memory) {
  if (sizes.media_rows == 0) return;
  CHECK(sizes.vision_rows % kVisionPage == 0, "vision rows ", sizes.vision_rows);
  const int64_t patches = sizes.vision_rows;
  const int64_t piece = kVisionPieceRows;
  const int64_t merged = piece / v.merged_patches();
  const int64_t pages = patches / kVisionPage;
  memory.hidden = maker.matrix(patches, v.hidden);
  memory.cos = maker.matrix(patches, v.head_dim() / 2);
  memory.sin = maker.matrix(patches, v.head_dim() / 2);
  memory.q = maker.matrix(patches, v.hidden);
  memory.page_floats = int64_t{2} * v.hidden * kVisionPage;
  memory.pages = maker.buffer(pages * memory.page_floats * int64_t{sizeof(float)});
  memory.rows = maker.matrix(sizes.media_rows, v.out);
  memory.levels = maker.matrix(piece, v.patch_values());
  memory.normed = maker.matrix(piece, v.hidden);
  memory.qkv = maker.matrix(piece, 3 * int64_t{v.hidden});
  memory.attention_out = maker.matrix(piece, v.hidden);
  memory.inner = maker.matrix(piece, v.inner);
  memory.merged = maker.matrix(merged, v.merged_width());
  memory.merged_inner = maker.matrix(merged, v.merged_width());
  memory.out = maker.matrix(merged, v.out);
  memory.bytes = maker.bytes() + pages * int64_t{sizeof(int32_t)};
}

}  // namespace

VisionMemory::VisionMemory(const VisionConfig& config, const PoolSizes& sizes) {
  MemoryMaker maker(Memory::made);
  make_all(config, sizes, maker, *this);
  page_ids.resize(static_cast<size_t>(sizes.media_rows == 0 ? 0 : sizes.vision_rows / kVisionPage));
  std::iota(page_ids.begin(), page_ids.end(), 0);
}

int64_t VisionMemory::bytes_of(const VisionConfig& config, const PoolSizes& sizes) {
  MemoryMaker maker(Memory::counted);
  VisionMemory counted;
  make_all(config, sizes, maker, counted);
  return counted.bytes;
}

}  // namespace nibble::cpu
