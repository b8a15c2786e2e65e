// The memory of a card: the ledger beside what the driver says.
#include "backend/cuda/runtime/card.h"

#include <algorithm>

#include "backend/cuda/runtime/architecture.h"
#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {
namespace {

/// Bytes that the driver takes for a process before it allocates anything: estimates, which
/// CudaMemoryTest prints beside the card's own figure. All other memory that is in use then counts
/// as that of other processes.
int64_t context_bytes(const Device& device) {
  constexpr int64_t kHopperMiB = 530;  // from what nvidia-smi showed beside a plan on an H200
  constexpr int64_t kUnknownMiB = 512;
  return (Architecture::is_hopper(device.compute_major) ? kHopperMiB : kUnknownMiB) << 20;
}

}  // namespace

DeviceMemory card_memory(const Device& device, const CardLimit& limit) {
  size_t free_now = 0;
  size_t all = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_now, &all));
  const bool limited = limit.memory_bytes > 0;
  DeviceMemory memory{
      .card = limited ? std::min(limit.memory_bytes, device.memory_bytes) : device.memory_bytes,
      .free = static_cast<int64_t>(free_now),
      .driver = device.memory_bytes - device.free_bytes,
      .allocated = device_ledger().used_bytes,
      .allocations = device_ledger().allocations};
  memory.context = std::min(memory.driver, context_bytes(device));
  if (limited) memory.free = std::min(memory.free, memory.card - memory.driver - memory.allocated);
  return memory;
}

}  // namespace nibble::cuda
