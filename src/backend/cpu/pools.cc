// Offsets into the two pools.
#include "backend/cpu/pools.h"

#include <algorithm>

#include "model/batch.h"
#include "model/host_pools.h"
#include "tensor/float_formats.h"

namespace nibble::cpu {
namespace {

int64_t conv_floats(const DeltaNetConfig& d) { return int64_t{d.conv_kernel - 1} * d.qkv_rows(); }
int64_t head_state_floats(const DeltaNetConfig& d) { return int64_t{d.k_dim} * d.v_dim; }
int64_t saved_floats(const DeltaNetConfig& d) { return int64_t{d.qkv_rows()} + 2 * d.v_heads; }
constexpr int64_t kFloat = sizeof(float);

int64_t element_bytes(KvFormat format) {
  return format == KvFormat::f32 ? 4 : format == KvFormat::bf16 ? 2 : 1;
}

/// Writes `count` numbers, `stride` elements apart.
template <typename T, typename Encode>
void scatter(const float* from, std::byte* to, int count, int64_t stride, const Encode& encode) {
  auto* out = reinterpret_cast<T*>(to);
  for (int i = 0; i < count; ++i) out[i * stride] = encode(from[i]);
}

void write(KvFormat format, const float* from, std::byte* to, int count, int64_t stride) {
  switch (format) {
    case KvFormat::f32:
      return scatter<float>(from, to, count, stride, [](float x) { return x; });
    case KvFormat::bf16:
      return scatter<uint16_t>(from, to, count, stride, float_to_bf16);
    case KvFormat::fp8:
      return scatter<uint8_t>(from, to, count, stride, float_to_e4m3);
  }
}

template <typename T>
std::span<const T> elements(std::span<const std::byte> page) {
  return {reinterpret_cast<const T*>(page.data()), page.size() / sizeof(T)};
}

}  // namespace

int64_t Pools::page_bytes(const ModelConfig& config, KvFormat format) {
  const AttentionConfig& a = config.attention;
  return int64_t{config.count(LayerKind::attention)} * a.kv_heads * 2 * kPageTokens * a.head_dim *
         element_bytes(format);
}

int64_t Pools::state_floats(const ModelConfig& config) {
  const DeltaNetConfig& d = config.delta_net;
  return config.count(LayerKind::delta_net) * (conv_floats(d) + d.v_heads * head_state_floats(d));
}

int64_t Pools::saved_row_floats(const ModelConfig& config) {
  return config.count(LayerKind::delta_net) * saved_floats(config.delta_net);
}

Pools::Pools(const ModelConfig& config, const PoolSizes& sizes, KvFormat format)
    : sizes_(sizes),
      format_(format),
      page_bytes_(page_bytes(config, format)),
      slot_floats_(state_floats(config) + sizes.replay_rows * saved_row_floats(config)),
      all_states_floats_(state_floats(config)),
      saved_row_floats_(saved_floats(config.delta_net)),
      kv_heads_(config.attention.kv_heads),
      head_dim_(config.attention.head_dim),
      head_bytes_(int64_t{kPageTokens} * head_dim_ * element_bytes(format)),
      conv_floats_(conv_floats(config.delta_net)),
      state_floats_(head_state_floats(config.delta_net)),
      layer_floats_(conv_floats_ + config.delta_net.v_heads * state_floats_),
      pages_(sizes.pages * page_bytes_),
      slots_(sizes.state_slots * slot_floats_ * kFloat) {}

int64_t Pools::k_offset(int layer, int kv_head) const {
  return (int64_t{layer} * kv_heads_ + kv_head) * 2 * head_bytes_;
}

int64_t Pools::v_offset(int layer, int kv_head) const {
  return k_offset(layer, kv_head) + head_bytes_;
}

std::span<std::byte> Pools::page(int32_t id) {
  CHECK(id >= 0 && id < sizes_.pages, "page ", id, " of ", sizes_.pages);
  return {pages_.data() + id * page_bytes_, static_cast<size_t>(page_bytes_)};
}

bool Pools::finite_page(int32_t id) {
  const std::span<const std::byte> all = page(id);
  if (format_ == KvFormat::f32) return all_finite(elements<float>(all));
  if (format_ == KvFormat::bf16)
    return std::ranges::all_of(elements<uint16_t>(all),
                               [](uint16_t code) { return (code & 0x7F80U) != 0x7F80U; });
  return std::ranges::all_of(elements<uint8_t>(all),
                             [](uint8_t code) { return (code & 0x7FU) != 0x7FU; });
}

void Pools::keep(const KvPlace& place, const float* key, const float* value) {
  std::byte* data = page(place.page).data();
  std::byte* keys = data + k_offset(place.layer, place.kv_head);
  std::byte* values = data + v_offset(place.layer, place.kv_head);
  const int64_t size = element_bytes(format_);
  write(format_, key, keys + place.slot * size, head_dim_, kPageTokens);
  write(format_, value, values + int64_t{place.slot} * head_dim_ * size, head_dim_, 1);
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

}  // namespace nibble::cpu
