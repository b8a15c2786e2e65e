// The account is a sum over the five buffers that a backend keeps.
#include "backend/cuda/reserved.h"

namespace nibble::cuda {

ReservedBytes reserved_in(const WeightStore& weights, const DeviceRope& rope,
                          const DevicePools& pools, const DeviceBuffer& workspace,
                          const DeviceBuffer* media) {
  ReservedBytes bytes = {.weights = weights.memory().resident_bytes(),
                         .tables = rope.memory.resident_bytes(),
                         .pages = pools.pages().resident_bytes(),
                         .states = pools.slots().resident_bytes(),
                         .workspace = workspace.resident_bytes()};
  for (const DeviceBuffer* buffer :
       {&weights.memory(), &rope.memory, &pools.pages(), &pools.slots(), &workspace})
    bytes.mapped += buffer->booked_bytes();
  if (media != nullptr) bytes.media = media->resident_bytes();
  if (media != nullptr) bytes.mapped += media->booked_bytes();
  return bytes;
}

}  // namespace nibble::cuda
