// Sizes.
#include "backend/cuda/workspace.h"

#include <algorithm>

#include "backend/cuda/ops/attention/attention.h"
#include "backend/cuda/ops/linear/linear.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kF32 = sizeof(float);
constexpr int64_t kBf16 = sizeof(uint16_t);
constexpr std::string_view kWhat = "the workspace";

/// Widths of rows between the products of mixers, in numbers.
struct MixerWidths {
  int64_t first = 0;
  int64_t third = 0;
  int64_t mixed = 0;
  int64_t convolved = 0;
};

MixerWidths mixer_widths(const ModelConfig& config) {
  MixerWidths widths{.first = config.hidden, .third = config.hidden};
  if (config.count(LayerKind::attention) > 0) {
    const AttentionConfig& a = config.attention;
    const int64_t q = int64_t{a.q_heads} * a.head_dim;
    widths.first = std::max(widths.first, a.output_gate ? 2 * q : q);
    widths.third = std::max(widths.third, int64_t{2} * a.kv_heads * a.head_dim);
    widths.mixed = q;
  }
  if (config.count(LayerKind::delta_net) > 0) {
    const DeltaNetConfig& d = config.delta_net;
    widths.first = std::max(widths.first, int64_t{d.qkv_rows()});
    widths.third = std::max(widths.third, int64_t{d.z_rows()});
    widths.mixed = std::max(widths.mixed, int64_t{d.z_rows()});
    widths.convolved = d.qkv_rows();
  }
  return widths;
}

Result<void> reserve_mixers(const ModelConfig& config, int64_t rows, Workspace& work) {
  const MixerWidths widths = mixer_widths(config);
  work.mixed_stride = work.parts * padded_columns(widths.mixed);
  work.gate_stride = int64_t{2} * config.delta_net.v_heads;
  work.first = TRY(DeviceBuffer::allocate(rows * widths.first * kF32, kWhat));
  work.third = TRY(DeviceBuffer::allocate(rows * widths.third * kF32, kWhat));
  work.gates = TRY(DeviceBuffer::allocate(rows * work.gate_stride * kF32, kWhat));
  work.mixed = TRY(DeviceBuffer::allocate(rows * work.mixed_stride * kBf16, kWhat));
  work.y = DeviceSlice(work.first.as<void>(), work.first.bytes());
  work.hidden = DeviceSlice(work.third.as<void>(), work.third.bytes());
  return {};
}

/// A mixer's, then the head's; returns how much they need.
int64_t carve_shared(const ModelConfig& config, int64_t rows, int64_t splits, std::byte* base,
                     Workspace& work) {
  const AttentionConfig& a = config.attention;
  DeviceCarver attention(base);
  if (config.count(LayerKind::attention) > 0)
    work.partial =
        attention.take(kAttendRowsMax * a.q_heads * splits * attend_partial_bytes(a.head_dim));
  DeviceCarver delta_net(base);
  work.convolved = delta_net.take(rows * mixer_widths(config).convolved * kF32);
  DeviceCarver head(base);
  const int64_t slab = std::min(rows, int64_t{kSlabRows});
  work.logits = head.take(slab * config.vocab_rows * kF32);
  work.hidden_rows = head.take(slab * config.hidden * kF32);
  return std::max({attention.used(), delta_net.used(), head.used()});
}

Result<void> reserve_mlp(const ModelConfig& config, int64_t rows, Workspace& work) {
  work.act_stride = work.parts * act_stride_of(config);
  if (!config.moe) {
    work.act = TRY(DeviceBuffer::allocate(rows * work.act_stride * kBf16, kWhat));
    return {};
  }
  const MoeConfig& m = *config.moe;
  const int64_t slab = std::min(rows, int64_t{kSlabRows});
  const int64_t places = slab * (m.top_k + 1);
  work.act = TRY(DeviceBuffer::allocate(places * work.act_stride * kBf16, kWhat));
  work.expert_y = TRY(DeviceBuffer::allocate(places * config.hidden * kF32, kWhat));
  work.router = TRY(DeviceBuffer::allocate(slab * (m.experts + 1) * kF32, kWhat));
  const int64_t ints = choice_ints(slab, m.top_k, m.experts);
  work.choices = TRY(DeviceBuffer::allocate(ints * int64_t{sizeof(int32_t)}, kWhat));
  return {};
}

}  // namespace

int64_t act_stride_of(const ModelConfig& config) {
  if (!config.moe) return padded_columns(config.dense_width);
  return padded_columns(std::max(config.moe->expert_width, config.moe->shared_width));
}

Result<Workspace> Workspace::reserve(const ModelConfig& config, int32_t rows, int32_t splits_max,
                                     int64_t shared_bytes, int32_t parts) {
  Workspace work;
  const int64_t hidden = config.hidden;
  work.parts = parts;
  work.x_stride = parts * padded_columns(hidden);
  work.h = TRY(DeviceBuffer::allocate(rows * hidden * kF32, kWhat));
  work.x = TRY(DeviceBuffer::allocate(rows * work.x_stride * kBf16, kWhat));
  TRY(reserve_mixers(config, rows, work));
  TRY(reserve_mlp(config, rows, work));
  const int64_t own_bytes = carve_shared(config, rows, splits_max, nullptr, work);
  work.shared = TRY(DeviceBuffer::allocate(std::max(own_bytes, shared_bytes), kWhat));
  carve_shared(config, rows, splits_max, work.shared.as<std::byte>(), work);
  work.flag = TRY(DeviceBuffer::allocate(sizeof(int32_t), kWhat));
  return work;
}

}  // namespace nibble::cuda
