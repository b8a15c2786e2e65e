// Sizes.
#include "backend/cuda/workspace.h"

#include <algorithm>

#include "backend/cuda/kernels.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kF32 = sizeof(float);
constexpr int64_t kBf16 = sizeof(uint16_t);
constexpr std::string_view kWhat = "the workspace";

Result<void> reserve_mixers(const ModelConfig& config, int64_t rows, int64_t splits,
                            Workspace& work) {
  int64_t first = 0;
  int64_t second = 0;
  int64_t third = 0;
  int64_t mixed = 0;
  if (config.count(LayerKind::attention) > 0) {
    const AttentionConfig& a = config.attention;
    const int64_t q = int64_t{a.q_heads} * a.head_dim;
    first = a.output_gate ? 2 * q : q;
    second = third = int64_t{a.kv_heads} * a.head_dim;
    mixed = q;
    work.partial = TRY(DeviceBuffer::allocate(
        kAttendRowsMax * a.q_heads * splits * attend_partial_floats(a.head_dim) * kF32, kWhat));
  }
  if (config.count(LayerKind::delta_net) > 0) {
    const DeltaNetConfig& d = config.delta_net;
    first = std::max(first, int64_t{d.qkv_rows()});
    second = std::max(second, int64_t{d.qkv_rows()});
    third = std::max(third, int64_t{d.z_rows()});
    mixed = std::max(mixed, int64_t{d.z_rows()});
    work.gate_stride = 2 * d.v_heads;
    work.gates = TRY(DeviceBuffer::allocate(rows * work.gate_stride * kF32, kWhat));
  }
  work.mixed_stride = padded_columns(mixed);
  work.first = TRY(DeviceBuffer::allocate(rows * first * kF32, kWhat));
  work.second = TRY(DeviceBuffer::allocate(rows * second * kF32, kWhat));
  work.third = TRY(DeviceBuffer::allocate(rows * third * kF32, kWhat));
  work.mixed = TRY(DeviceBuffer::allocate(rows * work.mixed_stride * kBf16, kWhat));
  return {};
}

Result<void> reserve_mlp(const ModelConfig& config, int64_t rows, Workspace& work) {
  if (!config.moe) {
    work.act_stride = padded_columns(config.dense_width);
    work.act = TRY(DeviceBuffer::allocate(rows * work.act_stride * kBf16, kWhat));
    return {};
  }
  const MoeConfig& m = *config.moe;
  const int64_t slab = std::min(rows, int64_t{kSlabRows});
  const int64_t places = slab * (m.top_k + 1);
  work.act_stride = padded_columns(std::max(m.expert_width, m.shared_width));
  work.act = TRY(DeviceBuffer::allocate(places * work.act_stride * kBf16, kWhat));
  work.expert_y = TRY(DeviceBuffer::allocate(places * config.hidden * kF32, kWhat));
  work.router = TRY(DeviceBuffer::allocate(slab * (m.experts + 1) * kF32, kWhat));
  const int64_t ints = choice_ints(slab, m.top_k, m.experts);
  work.choices = TRY(DeviceBuffer::allocate(ints * int64_t{sizeof(int32_t)}, kWhat));
  return {};
}

}  // namespace

Result<Workspace> Workspace::reserve(const ModelConfig& config, int32_t rows, int32_t splits_max) {
  Workspace work;
  const int64_t hidden = config.hidden;
  work.x_stride = padded_columns(hidden);
  work.h = TRY(DeviceBuffer::allocate(rows * hidden * kF32, kWhat));
  work.x = TRY(DeviceBuffer::allocate(rows * work.x_stride * kBf16, kWhat));
  work.y = TRY(DeviceBuffer::allocate(rows * hidden * kF32, kWhat));
  work.hidden = TRY(DeviceBuffer::allocate(rows * hidden * kF32, kWhat));
  TRY(reserve_mixers(config, rows, splits_max, work));
  TRY(reserve_mlp(config, rows, work));
  const int64_t slab = std::min(rows, kSlabRows);
  work.logits = TRY(DeviceBuffer::allocate(slab * config.vocab_rows * kF32, kWhat));
  work.hidden_rows = TRY(DeviceBuffer::allocate(slab * hidden * kF32, kWhat));
  work.flag = TRY(DeviceBuffer::allocate(sizeof(int32_t), kWhat));
  return work;
}

}  // namespace nibble::cuda
