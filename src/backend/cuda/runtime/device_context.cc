// Attributes and occupancy of a kernel are asked of the driver once. The memory of a card is told
// from the ledger and the driver's figure.
#include "backend/cuda/runtime/device_context.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/runtime/architecture.h"
#include "backend/cuda/runtime/device_memory.h"
#include "model/backend.h"

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

Result<std::unique_ptr<DeviceContext>> DeviceContext::open(const CardLimit& limit) {
  return std::make_unique<DeviceContext>(TRY(open_device()), limit);
}

DeviceContext::DeviceContext(Device facts, const CardLimit& limit)
    : facts_(std::move(facts)),
      limit_bytes_(limit.memory_bytes),
      stream_(Stream::create()),
      copy_stream_(Stream::create()) {
  const int64_t driver = facts_.memory_bytes - facts_.free_bytes;
  if (limit_bytes_ > 0) ledger_.limit(std::max<int64_t>(limit_bytes_ - driver, 1));
}

DeviceContext::~DeviceContext() {
  CHECK(ledger_.used_bytes() == 0, ledger_.used_bytes(), " bytes of a card were not given back");
}

DeviceMemory DeviceContext::memory() const {
  size_t free_now = 0;
  size_t all = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_now, &all));
  const bool limited = limit_bytes_ > 0;
  DeviceMemory memory{
      .card = limited ? std::min(limit_bytes_, facts_.memory_bytes) : facts_.memory_bytes,
      .free = static_cast<int64_t>(free_now),
      .driver = facts_.memory_bytes - facts_.free_bytes,
      .allocated = ledger_.used_bytes(),
      .allocations = ledger_.allocations()};
  memory.context = std::min(memory.driver, context_bytes(facts_));
  if (limited) memory.free = std::min(memory.free, memory.card - memory.driver - memory.allocated);
  return memory;
}

void DeviceContext::use() const { CUDA_CHECK(cudaSetDevice(facts_.index)); }

Result<void> DeviceContext::alive() const {
  const cudaError_t failure = device_failure();
  if (failure == cudaSuccess) return {};
  return make_error(ErrorCode::io, {.what = concat("card ", facts_.index, ", ", facts_.name,
                                                   ", failed and is lost to this process"),
                                    .found = cudaGetErrorString(failure),
                                    .advice = "start again; the kernel log may name an Xid"});
}

void DeviceContext::allow_shared(const void* kernel, int bytes) {
  const std::lock_guard lock(mutex_);
  const auto [known, fresh] = allowed_bytes_.try_emplace(kernel, bytes);
  if (!fresh && known->second >= bytes) return;
  known->second = bytes;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

int DeviceContext::resident_blocks(const void* kernel, int threads, int shared_bytes) {
  const std::lock_guard lock(mutex_);
  const auto [known, fresh] = resident_.try_emplace({kernel, threads, shared_bytes}, 1);
  if (!fresh) return known->second;
  int blocks = 1;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads,
                                                           static_cast<size_t>(shared_bytes)));
  return known->second = std::max(blocks, 1);
}

}  // namespace nibble::cuda
