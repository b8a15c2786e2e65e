// Allocation.
#include "backend/cuda/device_memory.h"

namespace nibble::cuda {
namespace {

Error out_of_memory(std::string_view what, int64_t bytes, std::string_view where, cudaError_t why) {
  cudaGetLastError();  // not sticky
  return make_error(ErrorCode::no_memory,
                    {.what = concat(bytes, " bytes of ", where, " memory for ", what),
                     .found = cudaGetErrorString(why),
                     .advice = "use a shorter context, fewer sequences or a smaller model"});
}

}  // namespace

Result<DeviceBuffer> DeviceBuffer::allocate(int64_t bytes, std::string_view what) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  const cudaError_t status = cudaMalloc(&buffer.data_, static_cast<size_t>(bytes));
  if (status != cudaSuccess) return out_of_memory(what, bytes, "device", status);
  buffer.bytes_ = bytes;
  CUDA_CHECK(cudaMemset(buffer.data_, 0, static_cast<size_t>(bytes)));
  return buffer;
}

DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

Result<PinnedBuffer> PinnedBuffer::allocate(int64_t bytes, std::string_view what) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  const cudaError_t status = cudaMallocHost(&buffer.data_, static_cast<size_t>(bytes));
  if (status != cudaSuccess) return out_of_memory(what, bytes, "page-locked host", status);
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

}  // namespace nibble::cuda
