// Numbers of KV pages on the host: how each format stores a line, what attention reads of one, and
// whether a page holds only finite ones. All backends read these; a kernel that loads a format is
// written beside the others of its backend.
#pragma once

#include <cstddef>
#include <iterator>
#include <span>

#include "model/backend.h"
#include "model/config/config.h"
#include "model/kv_format.h"

namespace nibble {

/// The format that an option names; `automatic` is what the backend has by itself. The kinds are
/// the formats, with `automatic` in the place of F32, which no option names.
constexpr KvFormat kv_format_of(KvCache kind, KvFormat automatic) {
  return kind == KvCache::automatic ? automatic : static_cast<KvFormat>(kind);
}
static_assert(std::size(kKvCaches) == kKvFormats);
static_assert(kv_format_of(KvCache::bf16, KvFormat::f32) == KvFormat::bf16 &&
              kv_format_of(KvCache::fp8, KvFormat::f32) == KvFormat::fp8 &&
              kv_format_of(KvCache::turboquant_4bit_nc, KvFormat::f32) ==
                  KvFormat::turboquant_4bit_nc &&
              kv_format_of(KvCache::nvfp4, KvFormat::f32) == KvFormat::nvfp4);

/// Refuses a format that cannot keep this model's heads: a head size of no whole groups of 16, or
/// no power of two where keys are rotated. Errors: unsupported, with the formats that can.
Result<void> check_kv_head_dim(KvFormat format, const ModelConfig& config);

/// The bytes of a page over all KV layers, that of a layer that drafts among them.
int64_t kv_format_page_bytes(const ModelConfig& config, KvFormat format);

/// The place of a line. Codes are numbers, of 4 bits pairs of them, `code_stride` apart; scales are
/// those of groups, `scale_stride` bytes apart, or what the whole line shares, one after the other.
struct KvLinePlace {
  std::byte* codes = nullptr;
  int64_t code_stride = 1;
  std::byte* scales = nullptr;
  int64_t scale_stride = 1;
};

/// Stores the numbers of a line. CHECKs that the format can hold as many.
void kv_store(KvFormat format, KvSide side, std::span<const float> line, const KvLinePlace& to);
/// The numbers that attention reads of a line once it is stored: keys of a format that rotates
/// stay turned. `to` may be the line itself.
void kv_keep(KvFormat format, KvSide side, std::span<const float> line, float* to);
/// Turns a query [head_dim] as the format turns its keys: x H / sqrt(head_dim), H the Hadamard
/// matrix in Sylvester's order, by butterflies of strides 1, 2, 4 ...; most formats turn nothing.
void kv_turn_query(KvFormat format, std::span<float> query);
/// True if no number is infinite or NaN in the lines of one head in a page: the numbers of all of
/// them, then the scales of all.
bool kv_finite(KvFormat format, KvSide side, std::span<const std::byte> lines, int64_t head_dim);

}  // namespace nibble
