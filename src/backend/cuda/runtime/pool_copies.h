// Copies of pages or slots between a pool on the device and its counterpart in host memory.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/runtime/device_memory.h"
#include "model/cache_moves.h"

namespace nibble::cuda {

/// A pool of equal parts and its counterpart in host memory.
struct PoolMemory {
  std::span<std::byte> device;
  std::span<std::byte> host;
  int64_t bytes_each = 0;
};

/// Queues the copies of one call. Adjacent ids are one copy, all copies are one call of the driver:
/// k calls of t_call and copies of b bytes at bandwidth w take max(k t_call, k b / w), so that a
/// call for each costs nothing only where b / w > t_call; on the thread that calls it always costs
/// k t_call. CHECKs that ids are in the pools and that the order of copies does not matter.
void queue_moves(const PoolMemory& pool, CacheMove move, std::span<const IdPair> ids,
                 cudaStream_t stream);

}  // namespace nibble::cuda
