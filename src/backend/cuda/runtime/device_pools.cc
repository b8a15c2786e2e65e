// This file computes offsets into the two pools.
#include "backend/cuda/runtime/device_pools.h"

#include "backend/cuda/runtime/pool_copies.h"
#include "backend/cuda/runtime/slot_layout.h"
#include "backend/cuda/weights/device_checks.h"
#include "model/batch.h"
#include "model/kv_codec.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t state_numbers(const DeltaNetConfig& d) { return int64_t{d.v_heads} * d.k_dim * d.v_dim; }
int64_t conv_floats(const DeltaNetConfig& d) { return int64_t{d.conv_kernel - 1} * d.qkv_rows(); }

}  // namespace

int64_t DevicePools::page_bytes(const ModelConfig& config, KvFormat format) {
  return kv_format_page_bytes(config, format);
}

void DevicePools::lay_out(const ModelConfig& config, KvFormat kv, StateFormat state,
                          int32_t replay_rows) {
  config_ = &config;
  kv_format_ = kv;
  state_format_ = state;
  page_bytes_ = page_bytes(config, kv);
  replay_rows_ = replay_rows;
  slot_bytes_ = state_slot_bytes(config, state) + replay_rows * saved_row_bytes(config);
}

Result<void> DevicePools::reserve(DeviceContext& device, const ModelConfig& config, KvFormat kv,
                                  StateFormat state, const PoolSizes& sizes) {
  lay_out(config, kv, state, sizes.replay_rows);
  pages_ = TRY(DeviceBuffer::allocate(device, sizes.pages * page_bytes_, "KV pages"));
  slots_ = TRY(DeviceBuffer::allocate(device, sizes.state_slots * slot_bytes_, "recurrent states"));
  host_pages_ = TRY(PinnedBuffer::allocate(sizes.host_pages * page_bytes_, "KV pages"));
  host_slots_ = TRY(PinnedBuffer::allocate(sizes.host_slots * slot_bytes_, "recurrent states"));
  return {};
}

void DevicePools::sleep() {
  pages_.sleep();
  slots_.sleep();
}
Result<void> DevicePools::wake() {
  TRY(pages_.wake("KV pages"));
  return slots_.wake("recurrent states");
}

KvView DevicePools::kv(int layer) const {
  const AttentionConfig& a = config_->attention;
  const int64_t lines = int64_t{kPageTokens} * a.kv_heads;
  uint8_t* keys = pages_.as<uint8_t>() + layer * lines * kv_token_bytes(kv_format_, a.head_dim);
  return {.keys = keys,
          .values = keys + lines * kv_line_bytes(kv_format_, KvSide::keys, a.head_dim),
          .page_stride = page_bytes_,
          .format = kv_format_};
}

StateView DevicePools::state(int layer) const {
  const DeltaNetConfig& d = config_->delta_net;
  auto* base = slots_.as<float>();
  return {.state = slots_.as<std::byte>() +
                   layer * state_numbers(d) * state_element_bytes(state_format_),
          .conv = base + states_floats(*config_, state_format_) + layer * conv_floats(d),
          .saved = base + state_slot_bytes(*config_, state_format_) / kFloat +
                   int64_t{layer} * d.saved_numbers(),
          .slot_stride = slot_bytes_ / kFloat,
          .saved_stride = saved_row_bytes(*config_) / kFloat,
          .format = state_format_};
}

HiddenView DevicePools::hidden() const {
  const int64_t row = config_->draft_row();  // it ends what it belongs to
  const int64_t saved_stride = saved_row_bytes(*config_) / kFloat;
  float* end = slots_.as<float>() + state_slot_bytes(*config_, state_format_) / kFloat;
  return {.last = end - row,
          .saved = end + saved_stride - row,
          .slot_stride = slot_bytes_ / kFloat,
          .saved_stride = saved_stride};
}

void DevicePools::move_pages(CacheMove move, std::span<const IdPair> pages,
                             cudaStream_t stream) const {
  queue_moves({.device = pages_.span(), .host = host_pages_.span(), .bytes_each = page_bytes_},
              move, pages, stream);
}
void DevicePools::move_slots(CacheMove move, std::span<const IdPair> slots,
                             cudaStream_t stream) const {
  queue_moves({.device = slots_.span(), .host = host_slots_.span(), .bytes_each = slot_bytes_},
              move, slots, stream);
}
void DevicePools::zero_slots(std::span<const int32_t> slots, cudaStream_t stream) const {
  for (const IdRun& run : adjacent_runs(slots)) {
    slot(run.to + run.count - 1);  // CHECKs the last id
    CUDA_CHECK(
        cudaMemsetAsync(slot(run.to), 0, static_cast<size_t>(run.count * slot_bytes_), stream));
  }
}

std::byte* DevicePools::at(const DeviceBuffer& buffer, int32_t id, int64_t bytes) {
  CHECK(id >= 0 && (id + 1) * bytes <= buffer.bytes(), "id ", id, " of ", buffer.bytes(),
        " bytes, ", bytes, " each");
  return buffer.as<std::byte>() + id * bytes;
}

void DevicePools::find_not_finite(std::span<const int32_t> pages, std::span<const int32_t> slots,
                                  int32_t* found, const Launcher& launcher) const {
  const auto find = [&](const std::byte* base, int64_t stride, int64_t bytes, KvFormat format,
                        std::span<const int32_t> ids) {
    cuda::find_not_finite({.base = reinterpret_cast<const uint8_t*>(base),
                           .stride = stride,
                           .bytes = bytes,
                           .format = format,
                           .kv_heads = config_->attention.kv_heads,
                           .head_dim = config_->attention.head_dim,
                           .ids = ids},
                          found, launcher);
  };
  if (!pages.empty()) find(page(0), page_bytes_, page_bytes_, kv_format_, pages);
  if (slots.empty()) return;
  const int64_t states = states_floats(*config_, state_format_) * kFloat;
  const KvFormat format = state_format_ == StateFormat::bf16 ? KvFormat::bf16 : KvFormat::f32;
  find(slot(0), slot_bytes_, states, format, slots);
  const auto in_f32 = [&](const std::byte* begin, int64_t floats) {
    find(begin, slot_bytes_, floats * kFloat, KvFormat::f32, slots);
  };
  in_f32(slot(0) + states, convolution_floats(*config_));
  if (config_->draft_layers > 0)
    in_f32(reinterpret_cast<const std::byte*>(hidden().last), config_->hidden);
}

}  // namespace nibble::cuda
