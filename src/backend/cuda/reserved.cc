// The account is a sum over the five buffers that a backend keeps.
#include "backend/cuda/reserved.h"

namespace nibble::cuda {

ReservedBytes reserved_in(const WeightStore& weights, const DeviceRope& rope,
                          const DevicePools& pools, const DeviceBuffer& workspace) {
  ReservedBytes bytes = {.weights = weights.memory().held_bytes(),
                         .tables = rope.memory.held_bytes(),
                         .pages = pools.pages().held_bytes(),
                         .states = pools.slots().held_bytes(),
                         .workspace = workspace.held_bytes()};
  for (const DeviceBuffer* buffer :
       {&weights.memory(), &rope.memory, &pools.pages(), &pools.slots(), &workspace})
    bytes.mapped += buffer->booked_bytes();
  return bytes;
}

}  // namespace nibble::cuda
