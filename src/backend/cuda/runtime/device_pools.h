// DevicePools owns the two cache pools on the device and their page-locked counterparts in host
// memory. device_weights.h has the layouts.
#pragma once

#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"
#include "model/backend.h"
#include "model/config/config.h"

namespace nibble::cuda {

class DevicePools {
 public:
  static int64_t page_bytes(const ModelConfig& config, KvFormat format);

  /// Lays out pages and slots without memory: addresses then only tell parts apart.
  void lay_out(const ModelConfig& config, KvFormat kv, StateFormat state, int32_t replay_rows);
  Result<void> reserve(DeviceContext& device, const ModelConfig& config, KvFormat kv,
                       StateFormat state, const PoolSizes& sizes);

  /// Do what DeviceBuffer's do: pages and states lose their contents and are zero afterwards.
  void sleep();
  Result<void> wake();

  /// `layer` counts layers of its kind; after those of attention comes the one that drafts.
  KvView kv(int layer) const;
  StateView state(int layer) const;
  HiddenView hidden() const;

  /// Queues checks that set *found = 1 on the device if a number of one of these pages, or of the
  /// states of these slots, is not finite.
  void find_not_finite(std::span<const int32_t> pages, std::span<const int32_t> slots,
                       int32_t* found, const Launcher& launcher) const;

  int64_t slot_bytes() const { return slot_bytes_; }  // with saved inputs
  int32_t replay_rows() const { return replay_rows_; }
  const DeviceBuffer& pages() const { return pages_; }
  const DeviceBuffer& slots() const { return slots_; }
  std::byte* page(int32_t id) const { return at(pages_, id, page_bytes_); }
  std::byte* slot(int32_t id) const { return at(slots_, id, slot_bytes_); }
  /// These queue the copies of one call of CacheStore as one batch of the driver.
  void move_pages(CacheMove move, std::span<const IdPair> pages, cudaStream_t stream) const;
  void move_slots(CacheMove move, std::span<const IdPair> slots, cudaStream_t stream) const;
  void zero_slots(std::span<const int32_t> slots, cudaStream_t stream) const;
  std::span<std::byte> host_page(int32_t id) const {
    return host_pages_.part(id * page_bytes_, page_bytes_);
  }
  std::span<std::byte> host_slot(int32_t id) const {
    return host_slots_.part(id * slot_bytes_, slot_bytes_);
  }

 private:
  static std::byte* at(const DeviceBuffer& buffer, int32_t id, int64_t bytes);

  const ModelConfig* config_ = nullptr;
  KvFormat kv_format_ = KvFormat::bf16;
  StateFormat state_format_ = StateFormat::f32;
  int64_t page_bytes_ = 0;
  int64_t slot_bytes_ = 0;
  int32_t replay_rows_ = 0;
  DeviceBuffer pages_, slots_;
  PinnedBuffer host_pages_, host_slots_;
};

}  // namespace nibble::cuda
