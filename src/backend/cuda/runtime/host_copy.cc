// Copies go in parts of 8 MiB; each thread has a page-locked buffer and a stream of its own.
#include "backend/cuda/runtime/host_copy.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cuda/runtime/copy_threads.h"

namespace nibble::cuda {
namespace {

constexpr int64_t kPartBytes = int64_t{8} << 20;

}  // namespace

Result<HostCopy> HostCopy::of(const DeviceBuffer& buffer) {
  HostCopy copy;
  const auto size = static_cast<size_t>(buffer.bytes());
  if (size == 0) return copy;
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return make_error(ErrorCode::no_memory,
                      {.what = concat(size, " bytes of host memory for a sleeping model"),
                       .found = "less",
                       .advice = "leave it awake"});
  ::madvise(data, size, MADV_HUGEPAGE);  // fewer faults; a hint
  copy.data_ = static_cast<std::byte*>(data);
  copy.bytes_ = buffer.bytes();
  TRY(copy.move(buffer, Direction::to_host));
  return copy;
}

HostCopy::~HostCopy() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
}

Result<void> HostCopy::restore(const DeviceBuffer& buffer) const {
  CHECK(buffer.bytes() == bytes_, "a buffer of ", buffer.bytes(), " for ", bytes_);
  return move(buffer, Direction::to_device);
}

Result<void> HostCopy::move(const DeviceBuffer& buffer, Direction direction) const {
  std::atomic<int64_t> next = 0;
  return on_copy_threads(buffer.device(), [&]() -> Result<void> {
    const PinnedBuffer staging = TRY(PinnedBuffer::allocate(kPartBytes, "copying weights"));
    const Stream stream = Stream::create();
    for (int64_t at = next.fetch_add(kPartBytes); at < bytes_; at = next.fetch_add(kPartBytes)) {
      const auto size = static_cast<size_t>(std::min(kPartBytes, bytes_ - at));
      std::byte* device = buffer.as<std::byte>() + at;
      auto* locked = staging.as<std::byte>();
      if (direction == Direction::to_device) std::memcpy(locked, data_ + at, size);
      CUDA_CHECK(direction == Direction::to_device
                     ? cudaMemcpyAsync(device, locked, size, cudaMemcpyHostToDevice, stream.get())
                     : cudaMemcpyAsync(locked, device, size, cudaMemcpyDeviceToHost, stream.get()));
      stream.wait();
      if (direction == Direction::to_host) std::memcpy(data_ + at, locked, size);
    }
    return {};
  });
}

}  // namespace nibble::cuda
