// The device memory that a backend holds, by part, counted from its buffers.
#pragma once

#include "backend/cuda/ops/attention/rope.h"
#include "backend/cuda/runtime/device_pools.h"
#include "backend/cuda/weights/weight_store.h"
#include "model/reserved_bytes.h"

namespace nibble::cuda {

/// A buffer that sleeps does not count. `mapped` is the ledger's count of these buffers, in whole
/// steps of the card's mapping for large ones.
ReservedBytes reserved_in(const WeightStore& weights, const DeviceRope& rope,
                          const DevicePools& pools, const DeviceBuffer& workspace,
                          const DeviceBuffer* media = nullptr);

}  // namespace nibble::cuda
