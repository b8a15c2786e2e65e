// Device and pinned host memory that owns itself, and CUDA errors as this house's errors: what the
// world can cause is a Result, what only a bug can cause is a CHECK.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "backend/cuda/runtime/device_slice.h"
#include "base/check.h"
#include "base/result.h"

/// A call that fails only through a bug or a broken card.
#define CUDA_CHECK(...)                                                          \
  do {                                                                           \
    const cudaError_t cuda_status_ = (__VA_ARGS__);                              \
    CHECK(cuda_status_ == cudaSuccess || ::nibble::cuda::outlived(cuda_status_), \
          #__VA_ARGS__ ": ", cudaGetErrorString(cuda_status_));                  \
  } while (false)

namespace nibble::cuda {

/// After this call an error that costs this process its card is kept instead of ending the process.
void outlive_device();
/// True if a status is such an error, or the consequence of one, and was kept.
bool outlived(cudaError_t status);
/// The first one kept, cudaSuccess if there was none.
cudaError_t device_failure();

class DeviceContext;

/// For tests: allocation `count` of this process from now on, counted from 0, page-locked host
/// memory among them, fails; negative: none.
void fail_allocation(int64_t count);

/// Zeroes device memory, or copies to it, and returns when it is done. The default stream does the
/// work and may not be done when its own calls return, and no stream of this backend waits for it:
/// without this wait, what a stream writes next would be zeroed afterwards on a card that others
/// share.
void zero_memory(void* to, int64_t bytes);
void copy_to_device(void* to, const void* from, int64_t bytes);

/// The memory is zeroed and 256-byte aligned. Its address stays when it sleeps.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Allocates memory of `device`, which is the current one of this thread and counts the bytes.
  /// Errors: no_memory, with `what` it is for.
  static Result<DeviceBuffer> allocate(DeviceContext& device, int64_t bytes, std::string_view what);
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer();

  /// The card that it is on; the buffer is not empty.
  const DeviceContext& device() const { return *device_; }
  int64_t bytes() const { return bytes_; }
  /// The bytes asked for, while there is memory for them: 0 while a large buffer sleeps.
  int64_t resident_bytes() const { return asleep() ? 0 : bytes_; }
  /// The bytes that the ledger counts for it: those asked for, of a large buffer in whole steps.
  int64_t booked_bytes() const {
    if (asleep()) return 0;
    return mapped_bytes_ > 0 ? mapped_bytes_ : bytes_;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::span<std::byte> span() const { return {as<std::byte>(), static_cast<size_t>(bytes_)}; }

  /// Large buffers give their memory back and keep their address; small ones do nothing. Nothing
  /// may use it until wake(). The device is idle.
  void sleep();
  /// Maps zeroed memory at the same address. Errors: no_memory.
  Result<void> wake(std::string_view what);

 private:
  bool asleep() const { return mapped_bytes_ > 0 && handle_ == 0; }
  void swap(DeviceBuffer& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(handle_, other.handle_);
  }
  DeviceContext* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  int64_t mapped_bytes_ = 0;  // size of the address range of a large buffer
  uint64_t handle_ = 0;       // handle of the mapped memory; 0 while asleep
};

/// A PinnedBuffer is page-locked host memory, which is not initialised.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  static Result<PinnedBuffer> allocate(int64_t bytes, std::string_view what);
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedBuffer();

  int64_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::span<std::byte> span() const { return part(0, bytes_); }
  std::span<std::byte> part(int64_t begin, int64_t count) const {
    CHECK(begin >= 0 && begin + count <= bytes_, "bytes ", begin, "+", count, " of ", bytes_);
    return {as<std::byte>() + begin, static_cast<size_t>(count)};
  }

 private:
  void swap(PinnedBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace nibble::cuda
