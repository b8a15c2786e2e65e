// Allocates memory. A buffer of kLargeBytes or more is a reserved range of addresses with memory
// mapped into it, so that the memory can go and come back while recorded passes keep their
// addresses.
#include "backend/cuda/runtime/device_memory.h"

#include <cuda.h>

#include <atomic>

#include "backend/cuda/runtime/device_context.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kLargeBytes = int64_t{32} << 20;

std::atomic<bool> outlives{false};
std::atomic<cudaError_t> failure{cudaSuccess};
std::atomic<int64_t> until_failure{-1};  // allocations; negative: none fails

/// Errors that leave the process without its context.
bool ends_the_context(cudaError_t status) {
  switch (status) {
    case cudaErrorAssert:
    case cudaErrorContextIsDestroyed:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

/// True if this allocation is the one that a test makes fail.
bool fails() { return until_failure >= 0 && until_failure-- == 0; }

/// The functions by which the driver maps memory are looked up once; those that a driver lacks stay
/// null.
struct Mapping {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_address = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;

  Mapping() {
    find(granularity, "cuMemGetAllocationGranularity");
    find(reserve, "cuMemAddressReserve");
    find(free_address, "cuMemAddressFree");
    find(create, "cuMemCreate");
    find(release, "cuMemRelease");
    find(map, "cuMemMap");
    find(unmap, "cuMemUnmap");
    find(set_access, "cuMemSetAccess");
  }
  template <typename Function>
  static void find(Function& function, const char* name) {
    constexpr unsigned kSince = 10020;  // CUDA 10.2 brought all of them
    cudaDriverEntryPointQueryResult found = {};
    void* address = nullptr;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &address, kSince, cudaEnableDefault, &found);
    if (status == cudaSuccess && found == cudaDriverEntryPointSuccess)
      function = reinterpret_cast<Function>(address);
  }
};
const Mapping& mapping() {
  static const Mapping the_mapping;
  return the_mapping;
}

CUmemAllocationProp on_the_card(const DeviceContext& device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device.facts().index};
  return properties;
}

/// Maps memory into a reserved range and returns its handle; 0 if the card has none left.
uint64_t map_memory(const DeviceContext& device, void* data, int64_t bytes) {
  const CUmemAllocationProp properties = on_the_card(device);
  CUmemGenericAllocationHandle handle = 0;
  const auto size = static_cast<size_t>(bytes);
  if (mapping().create(&handle, size, &properties, 0) != CUDA_SUCCESS) return 0;
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  const CUmemAccessDesc access = {.location = properties.location,
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CHECK(mapping().map(address, size, 0, handle, 0) == CUDA_SUCCESS, "mapping ", bytes, " bytes");
  CHECK(mapping().set_access(address, size, &access, 1) == CUDA_SUCCESS, bytes, " bytes");
  return handle;
}

int64_t mapped_bytes_of(const DeviceContext& device, int64_t bytes) {
  const CUmemAllocationProp properties = on_the_card(device);
  size_t unit = 0;
  CHECK(mapping().granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) ==
            CUDA_SUCCESS,
        "granularity of device memory");
  const auto step = static_cast<int64_t>(unit);
  return (bytes + step - 1) / step * step;
}

Error out_of_memory(std::string_view what, int64_t bytes, std::string_view where,
                    std::string_view why) {
  cudaGetLastError();  // clears the error, which is not sticky
  return make_error(ErrorCode::no_memory,
                    {.what = concat(bytes, " bytes of ", where, " memory for ", what),
                     .found = why,
                     .advice = "use a shorter context, fewer sequences or a smaller model"});
}

}  // namespace

void outlive_device() { outlives = true; }

bool outlived(cudaError_t status) {
  if (!outlives) return false;
  if (ends_the_context(status)) {
    cudaError_t none = cudaSuccess;
    failure.compare_exchange_strong(none, status);
  }
  return failure != cudaSuccess;
}

cudaError_t device_failure() { return failure; }

void fail_allocation(int64_t count) { until_failure = count; }

void zero_memory(void* to, int64_t bytes) {
  CUDA_CHECK(cudaMemset(to, 0, static_cast<size_t>(bytes)));
  CUDA_CHECK(cudaStreamSynchronize(nullptr));
}

void copy_to_device(void* to, const void* from, int64_t bytes) {
  CUDA_CHECK(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaStreamSynchronize(nullptr));
}

Result<DeviceBuffer> DeviceBuffer::allocate(DeviceContext& device, int64_t bytes,
                                            std::string_view what) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  buffer.device_ = &device;
  const auto size = static_cast<size_t>(bytes);
  if (bytes >= kLargeBytes && mapping().create != nullptr && mapping().set_access != nullptr) {
    const int64_t mapped = mapped_bytes_of(device, bytes);
    CUdeviceptr address = 0;
    if (mapping().reserve(&address, static_cast<size_t>(mapped), 0, 0, 0) != CUDA_SUCCESS)
      return out_of_memory(what, bytes, "device", "no range of addresses");
    buffer.data_ = reinterpret_cast<void*>(address);
    buffer.bytes_ = bytes;
    buffer.mapped_bytes_ = mapped;
    TRY(buffer.wake(what));
    return buffer;
  }
  if (fails() || !device.ledger().take(bytes))
    return out_of_memory(what, bytes, "device", "the limit is reached");
  if (const cudaError_t status = cudaMalloc(&buffer.data_, size); status != cudaSuccess) {
    device.ledger().give(bytes);
    return out_of_memory(what, bytes, "device", cudaGetErrorString(status));
  }
  buffer.bytes_ = bytes;
  zero_memory(buffer.data_, bytes);
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  if (mapped_bytes_ == 0) {
    cudaFree(data_);
    device_->ledger().give(bytes_);
    return;
  }
  cudaDeviceSynchronize();  // as cudaFree does
  sleep();
  mapping().free_address(reinterpret_cast<CUdeviceptr>(data_), static_cast<size_t>(mapped_bytes_));
}

void DeviceBuffer::sleep() {
  if (handle_ == 0) return;
  mapping().unmap(reinterpret_cast<CUdeviceptr>(data_), static_cast<size_t>(mapped_bytes_));
  mapping().release(handle_);
  handle_ = 0;
  device_->ledger().give(mapped_bytes_);
}

Result<void> DeviceBuffer::wake(std::string_view what) {
  if (mapped_bytes_ == 0 || handle_ != 0) return {};
  if (fails() || !device_->ledger().take(mapped_bytes_))
    return out_of_memory(what, bytes_, "device", "the limit is reached");
  handle_ = map_memory(*device_, data_, mapped_bytes_);
  if (handle_ == 0) {
    device_->ledger().give(mapped_bytes_);
    return out_of_memory(what, bytes_, "device", "the card has less");
  }
  zero_memory(data_, bytes_);
  return {};
}

Result<PinnedBuffer> PinnedBuffer::allocate(int64_t bytes, std::string_view what) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  if (fails()) return out_of_memory(what, bytes, "page-locked host", "a test's limit");
  const cudaError_t status = cudaMallocHost(&buffer.data_, static_cast<size_t>(bytes));
  if (status != cudaSuccess)
    return out_of_memory(what, bytes, "page-locked host", cudaGetErrorString(status));
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

}  // namespace nibble::cuda
