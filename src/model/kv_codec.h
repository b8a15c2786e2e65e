// Numbers of KV pages on the host: how each format stores a line, what it keeps of one, and whether
// a page holds only finite ones. All backends read these; a kernel that loads a format is written
// beside the others of its backend.
#pragma once

#include <cstddef>
#include <iterator>
#include <span>

#include "model/backend.h"
#include "model/kv_format.h"

namespace nibble {

/// The format that an option names; `automatic` is what the backend has by itself. The kinds are
/// the formats, with `automatic` in the place of F32, which no option names.
constexpr KvFormat kv_format_of(KvCache kind, KvFormat automatic) {
  return kind == KvCache::automatic ? automatic : static_cast<KvFormat>(kind);
}
static_assert(std::size(kKvCaches) == kKvFormats);
static_assert(kv_format_of(KvCache::bf16, KvFormat::f32) == KvFormat::bf16 &&
              kv_format_of(KvCache::fp8, KvFormat::f32) == KvFormat::fp8);

/// Stores the numbers of a line, `stride` elements apart. CHECKs that the format can hold as many.
void kv_store(KvFormat format, std::span<const float> line, std::byte* to, int64_t stride);
/// The numbers that a page keeps of those of a line.
void kv_keep(KvFormat format, std::span<const float> line, float* to);
/// True if no number of a page is infinite or NaN.
bool kv_finite(KvFormat format, std::span<const std::byte> page);

}  // namespace nibble
