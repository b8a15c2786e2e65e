// Offsets into the two pools.
#include "backend/cpu/pools.h"

#include "model/batch.h"
#include "model/host_pools.h"

namespace nibble::cpu {
namespace {

int64_t conv_floats(const DeltaNetConfig& d) { return int64_t{d.conv_kernel - 1} * d.qkv_rows(); }
int64_t head_state_floats(const DeltaNetConfig& d) { return int64_t{d.k_dim} * d.v_dim; }
constexpr int64_t kFloat = sizeof(float);

}  // namespace

KvLinePlace key_place(KvFormat format, std::byte* lines, int64_t head_dim, int slot) {
  const KvLine line = kv_traits(format).keys;
  const int64_t element = line.element_bits < 8 ? 1 : line.element_bits / 8;
  const int64_t scale = line.whole_bytes > 0 ? line.whole_bytes : 1;
  return {.codes = lines + slot * element,
          .code_stride = kPageTokens,
          .scales = lines + kPageTokens * kv_code_bytes(format, head_dim) + slot * scale,
          .scale_stride = kPageTokens};
}

KvLinePlace value_place(KvFormat format, std::byte* lines, int64_t head_dim, int slot) {
  const int64_t codes = kv_code_bytes(format, head_dim);
  return {.codes = lines + slot * codes,
          .scales = lines + kPageTokens * codes +
                    slot * kv_scale_bytes(format, KvSide::values, head_dim)};
}

int64_t Pools::page_bytes(const ModelConfig& config, KvFormat format) {
  return kv_format_page_bytes(config, format);
}

int64_t Pools::state_floats(const ModelConfig& config) {
  const DeltaNetConfig& d = config.delta_net;
  const int64_t layer = conv_floats(d) + d.v_heads * head_state_floats(d);
  return config.count(LayerKind::delta_net) * layer + config.draft_row();
}

int64_t Pools::saved_row_floats(const ModelConfig& config) {
  return int64_t{config.count(LayerKind::delta_net)} * config.delta_net.saved_numbers() +
         config.draft_row();
}

Pools::Pools(const ModelConfig& config, const PoolSizes& sizes, KvFormat format)
    : sizes_(sizes),
      format_(format),
      page_bytes_(page_bytes(config, format)),
      slot_floats_(state_floats(config) + sizes.replay_rows * saved_row_floats(config)),
      all_states_floats_(state_floats(config)),
      saved_row_floats_(config.delta_net.saved_numbers()),
      kv_heads_(config.attention.kv_heads),
      head_dim_(config.attention.head_dim),
      key_bytes_(int64_t{kPageTokens} * kv_line_bytes(format, KvSide::keys, head_dim_)),
      value_bytes_(int64_t{kPageTokens} * kv_line_bytes(format, KvSide::values, head_dim_)),
      conv_floats_(conv_floats(config.delta_net)),
      state_floats_(head_state_floats(config.delta_net)),
      layer_floats_(conv_floats_ + config.delta_net.v_heads * state_floats_),
      hidden_floats_(config.draft_row()),
      pages_(sizes.pages * page_bytes_),
      slots_(sizes.state_slots * slot_floats_ * kFloat) {}

int64_t Pools::k_offset(int layer, int kv_head) const {
  return (int64_t{layer} * kv_heads_ + kv_head) * (key_bytes_ + value_bytes_);
}

int64_t Pools::v_offset(int layer, int kv_head) const {
  return k_offset(layer, kv_head) + key_bytes_;
}

std::span<std::byte> Pools::page(int32_t id) {
  CHECK(id >= 0 && id < sizes_.pages, "page ", id, " of ", sizes_.pages);
  return {pages_.data() + id * page_bytes_, static_cast<size_t>(page_bytes_)};
}

bool Pools::finite_page(int32_t id) {
  const std::span<std::byte> all = page(id);
  for (int64_t at = 0; at < page_bytes_; at += key_bytes_ + value_bytes_) {
    const auto head = all.subspan(static_cast<size_t>(at));
    const auto values = head.subspan(static_cast<size_t>(key_bytes_));
    if (!kv_finite(format_, KvSide::keys, head.first(static_cast<size_t>(key_bytes_)), head_dim_) ||
        !kv_finite(format_, KvSide::values, values.first(static_cast<size_t>(value_bytes_)),
                   head_dim_))
      return false;
  }
  return true;
}

void Pools::keep(const KvPlace& place, const float* key, const float* value) {
  std::byte* data = page(place.page).data();
  std::byte* keys = data + k_offset(place.layer, place.kv_head);
  std::byte* values = data + v_offset(place.layer, place.kv_head);
  const auto count = static_cast<size_t>(head_dim_);
  kv_store(format_, KvSide::keys, {key, count}, key_place(format_, keys, head_dim_, place.slot));
  kv_store(format_, KvSide::values, {value, count},
           value_place(format_, values, head_dim_, place.slot));
}

std::span<float> Pools::slot(int32_t id) {
  CHECK(id >= 0 && id < sizes_.state_slots, "state slot ", id, " of ", sizes_.state_slots);
  return {reinterpret_cast<float*>(slots_.data()) + id * slot_floats_,
          static_cast<size_t>(slot_floats_)};
}

std::span<float> Pools::state(int32_t id) {
  return slot(id).first(static_cast<size_t>(all_states_floats_));
}

float* Pools::conv_state(int32_t id, int layer) { return slot(id).data() + layer * layer_floats_; }

float* Pools::delta_state(int32_t id, int layer, int v_head) {
  return conv_state(id, layer) + conv_floats_ + v_head * state_floats_;
}

float* Pools::saved_row(int32_t id, int layer, int row) {
  CHECK(row >= 0 && row < sizes_.replay_rows, "saved row ", row, " of ", sizes_.replay_rows);
  return slot(id).data() + all_states_floats_ +
         (int64_t{layer} * sizes_.replay_rows + row) * saved_row_floats_;
}

float* Pools::hidden_before(int32_t id, int32_t replay) {
  CHECK(replay >= 0 && replay <= sizes_.replay_rows, "hidden row ", replay, " of ",
        sizes_.replay_rows);
  float* begin = slot(id).data();
  if (replay == 0) return begin + all_states_floats_ - hidden_floats_;
  return begin + slot_floats_ + (replay - 1 - sizes_.replay_rows) * hidden_floats_;
}

}  // namespace nibble::cpu
