// The cache pools. A KV page spans all KV layers (those of attention, then the one that drafts, if
// it is loaded) and KV heads:
//   [layer][kv head]{ keys [head_dim][64], values [64][head_dim] }
// Keys lie transposed, so that 16 keys meet one query element in one instruction. Of 4 bits, a byte
// has dimensions 2 i and 2 i + 1 of one token: keys [head_dim / 2][64], values [64][head_dim / 2].
// The scales of the 64 keys, and of the 64 values, follow their numbers: those of groups
// [head_dim / 16][64] and [64][head_dim / 16], those of whole lines [64]. A state slot:
//   [layer]{ convolution inputs [taps - 1][qkv_rows], oldest first; state [v head][k_dim][v_dim] }
//   hidden row of the last token [hidden], with a layer that drafts
//   [layer][replay row]{ raw qkv [qkv_rows]; alpha [v_heads]; beta [v_heads] }, saved inputs
//   [replay row] hidden rows [hidden], likewise
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/kernels.h"
#include "model/backend.h"
#include "model/kv_codec.h"
#include "tensor/tensor.h"

namespace nibble::cpu {

/// The place of a token's line among the 64 keys (or values) of one head in a page, which begin at
/// `lines`. `slot` is the token's place in the page.
KvLinePlace key_place(KvFormat format, std::byte* lines, int64_t head_dim, int slot);
KvLinePlace value_place(KvFormat format, std::byte* lines, int64_t head_dim, int slot);

class Pools {
 public:
  Pools() = default;
  Pools(const ModelConfig& config, const PoolSizes& sizes, KvFormat format);

  static int64_t page_bytes(const ModelConfig& config, KvFormat format);
  static int64_t state_floats(const ModelConfig& config);
  static int64_t saved_row_floats(const ModelConfig& config);

  const PoolSizes& sizes() const { return sizes_; }
  int64_t all_pages_bytes() const { return pages_.bytes(); }
  int64_t all_slots_bytes() const { return slots_.bytes(); }
  KvFormat format() const { return format_; }
  const std::byte* pages() const { return pages_.data(); }
  int64_t page_stride() const { return page_bytes_; }
  /// Offsets in a page, bytes. `layer` counts KV layers only.
  int64_t k_offset(int layer, int kv_head) const;
  int64_t v_offset(int layer, int kv_head) const;
  std::span<std::byte> page(int32_t id);
  /// True if every number of the page is finite.
  bool finite_page(int32_t id);
  /// One token's keys and values of one head, [head_dim] each, rounded to the format. `slot` is the
  /// token's place in the page.
  struct KvPlace {
    int32_t page = 0;
    int layer = 0;
    int kv_head = 0;
    int slot = 0;
  };
  void keep(const KvPlace& place, const float* key, const float* value);

  std::span<float> slot(int32_t id);   // state and saved inputs
  std::span<float> state(int32_t id);  // without them
  /// `layer` counts delta-net layers only.
  float* conv_state(int32_t slot, int layer);
  float* delta_state(int32_t slot, int layer, int v_head);
  float* saved_row(int32_t slot, int layer, int row);
  /// The hidden row of the token before a pass, of a model that drafts: after the last of `replay`
  /// saved inputs, or the slot's own.
  float* hidden_before(int32_t slot, int32_t replay);
  float* hidden(int32_t slot) { return hidden_before(slot, 0); }
  float* saved_hidden(int32_t slot, int32_t row) { return hidden_before(slot, row + 1); }

 private:
  PoolSizes sizes_;
  KvFormat format_ = KvFormat::f32;
  int64_t page_bytes_ = 0;
  int64_t slot_floats_ = 0;
  int64_t all_states_floats_ = 0;  // of a slot
  int64_t saved_row_floats_ = 0;   // of one layer
  int kv_heads_ = 0;
  int head_dim_ = 0;
  int64_t key_bytes_ = 0;     // of one head in a page
  int64_t value_bytes_ = 0;   // likewise
  int64_t conv_floats_ = 0;   // of one layer
  int64_t state_floats_ = 0;  // of one head
  int64_t layer_floats_ = 0;  // of one delta-net layer
  int64_t hidden_floats_ = 0;
  Buffer pages_;
  Buffer slots_;
};

}  // namespace nibble::cpu
