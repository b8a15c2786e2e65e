// Numbers of KV pages on the host: how each format stores one, and whether a page holds only finite
// ones. All backends read these; a kernel that loads a format is written beside the others of its
// backend.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "model/backend.h"
#include "model/kv_format.h"

namespace nibble {

/// For people: "bf16".
std::string_view kv_format_name(KvFormat format);
/// The format that an option names; `automatic` is what the backend has by itself.
constexpr KvFormat kv_format_of(KvCache kind, KvFormat automatic) {
  return kind == KvCache::fp8 ? KvFormat::fp8 : kind == KvCache::bf16 ? KvFormat::bf16 : automatic;
}

/// Stores `count` numbers, `stride` elements apart.
void kv_store(KvFormat format, std::span<const float> from, std::byte* to, int64_t stride);
/// The number that a page keeps of x.
float kv_kept(KvFormat format, float x);
/// True if no number of a page is infinite or NaN.
bool kv_finite(KvFormat format, std::span<const std::byte> page);

}  // namespace nibble
