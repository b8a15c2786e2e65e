// Storage and copies.
#include "backend/reference/caches.h"

#include <algorithm>
#include <limits>

#include "model/host_pools.h"
#include "model/kv_codec.h"
#include "tensor/float_formats.h"

namespace nibble::reference {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

size_t page_floats(const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.kv_layers());
  const auto width = static_cast<size_t>(config.attention.kv_heads * config.attention.head_dim);
  return layers * 2 * kPageTokens * width;
}

size_t recurrent_floats(const DeltaNetConfig& delta) {
  return static_cast<size_t>(delta.v_heads) * static_cast<size_t>(delta.k_dim * delta.v_dim);
}

size_t conv_floats(const DeltaNetConfig& delta) {
  return static_cast<size_t>(delta.conv_kernel - 1) * static_cast<size_t>(delta.qkv_rows());
}

/// `floats` of each delta-net layer, and the hidden row.
int64_t slot_bytes(const ModelConfig& config, size_t floats) {
  const int layers = config.count(LayerKind::delta_net);
  const int64_t all =
      (layers == 0 ? 0 : static_cast<int64_t>(floats) * layers) + config.draft_row();
  return all * int64_t{sizeof(float)};
}

size_t saved_floats(const DeltaNetConfig& delta) {
  return static_cast<size_t>(delta.qkv_rows() + 2 * delta.v_heads);
}

}  // namespace

void KvPages::reserve(const ModelConfig& config, int32_t pages) {
  width_ = static_cast<size_t>(config.attention.kv_heads * config.attention.head_dim);
  head_dim_ = static_cast<size_t>(config.attention.head_dim);
  page_floats_ = page_floats(config);
  data_.assign(page_floats_ * static_cast<size_t>(pages), 0.0F);
}

int64_t KvPages::bytes(const ModelConfig& config) {
  return static_cast<int64_t>(page_floats(config) * sizeof(float));
}

float* KvPages::at(const int32_t* page_table, int part, int64_t token) {
  const auto page = static_cast<size_t>(page_table[token / kPageTokens]);
  const auto row =
      static_cast<size_t>(part) * kPageTokens + static_cast<size_t>(token) % kPageTokens;
  return &data_[page * page_floats_ + row * width_];
}

float* KvPages::key(const int32_t* page_table, int layer, int64_t token) {
  return at(page_table, 2 * layer, token);
}
float* KvPages::value(const int32_t* page_table, int layer, int64_t token) {
  return at(page_table, 2 * layer + 1, token);
}

void KvPages::keep(KvSide side, int layer, const float* from, float* to) const {
  const KvFormat format = kv_format_of(kind_, KvFormat::f32);
  const auto at = static_cast<size_t>(layer);
  const KvScale scales = at < scales_.size() ? scales_[at] : KvScale();
  const float scale = side == KvSide::keys ? scales.keys : scales.values;
  std::vector<float> line(from, from + width_);
  for (float& x : line) x /= scale;
  for (size_t begin = 0; begin < width_; begin += head_dim_)
    kv_keep(format, side, {line.data() + begin, head_dim_}, to + begin);
  for (size_t i = 0; i < width_; ++i) to[i] *= scale;
}

void KvPages::turn_query(float* query) const {
  kv_turn_query(kv_format_of(kind_, KvFormat::f32), {query, head_dim_});
}

void KvPages::copy(int32_t from, int32_t to) {
  std::copy_n(&data_[static_cast<size_t>(from) * page_floats_], page_floats_,
              &data_[static_cast<size_t>(to) * page_floats_]);
}

void KvPages::poison(int32_t page) {
  std::fill_n(&data_[static_cast<size_t>(page) * page_floats_], page_floats_, kPoison);
}

void StateSlots::reserve(const ModelConfig& config, const PoolSizes& sizes) {
  const DeltaNetConfig& delta = config.delta_net;
  const auto layers = static_cast<size_t>(config.count(LayerKind::delta_net));
  Slot zero;
  if (layers > 0) {
    const DeltaState state{.recurrent = std::vector<float>(recurrent_floats(delta)),
                           .conv = std::vector<float>(conv_floats(delta))};
    const auto rows = static_cast<size_t>(sizes.replay_rows);
    zero.layers.assign(layers, state);
    zero.saved.assign(layers, SavedInputs(rows * saved_floats(delta)));
  }
  hidden_width_ = static_cast<size_t>(config.draft_row());
  zero.hidden.resize(hidden_width_);
  zero.saved_hidden.resize(static_cast<size_t>(sizes.replay_rows) * hidden_width_);
  slots_.assign(static_cast<size_t>(sizes.state_slots), zero);
}

int64_t StateSlots::bytes(const ModelConfig& config) {
  const DeltaNetConfig& delta = config.delta_net;
  const size_t floats = recurrent_floats(delta) + conv_floats(delta);
  return slot_bytes(config, floats);
}

int64_t StateSlots::saved_row_bytes(const ModelConfig& config) {
  return slot_bytes(config, saved_floats(config.delta_net));
}

std::span<float> StateSlots::hidden_before(int32_t slot, int32_t replay) {
  Slot& all = slots_[static_cast<size_t>(slot)];
  if (replay == 0) return all.hidden;
  return std::span(all.saved_hidden)
      .subspan(static_cast<size_t>(replay - 1) * hidden_width_, hidden_width_);
}

void StateSlots::round(DeltaState& state) const {
  if (kind_ != StateCache::bf16) return;
  for (float& value : state.recurrent) value = round_to_bf16(value);
}

void StateSlots::copy(int32_t from, int32_t to) {
  slots_[static_cast<size_t>(to)] = slots_[static_cast<size_t>(from)];
}

void StateSlots::fill(int32_t slot, float value) {
  Slot& values = slots_[static_cast<size_t>(slot)];
  for (DeltaState& state : values.layers) {
    std::ranges::fill(state.recurrent, value);
    std::ranges::fill(state.conv, value);
  }
  for (SavedInputs& inputs : values.saved) std::ranges::fill(inputs, value);
  std::ranges::fill(values.hidden, value);
  std::ranges::fill(values.saved_hidden, value);
}

std::vector<std::span<float>> StateSlots::values(int32_t slot) {
  Slot& all = slots_[static_cast<size_t>(slot)];
  std::vector<std::span<float>> out;
  for (DeltaState& state : all.layers) {
    out.emplace_back(state.recurrent);
    out.emplace_back(state.conv);
  }
  out.emplace_back(all.hidden);
  out.insert(out.end(), all.saved.begin(), all.saved.end());
  out.emplace_back(all.saved_hidden);
  return out;
}

void StateSlots::store(int32_t slot, std::span<std::byte> to) {
  for (const std::span<float> part : values(slot)) {
    std::ranges::copy(std::as_bytes(part), to.begin());
    to = to.subspan(part.size_bytes());
  }
}

void StateSlots::load(std::span<const std::byte> from, int32_t slot) {
  for (const std::span<float> part : values(slot)) {
    std::ranges::copy(from.first(part.size_bytes()), std::as_writable_bytes(part).begin());
    from = from.subspan(part.size_bytes());
  }
}

bool StateSlots::finite(int32_t slot) const {
  const Slot& all = slots_[static_cast<size_t>(slot)];
  const auto sound = [](const DeltaState& state) {
    return all_finite(state.recurrent) && all_finite(state.conv);
  };
  return std::ranges::all_of(all.layers, sound) && all_finite(all.hidden);
}

}  // namespace nibble::reference
