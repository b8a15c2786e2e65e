// A CUDA stream that owns itself.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {

class Stream {
 public:
  Stream() = default;
  /// A stream of the current device, which does not wait for the default stream.
  static Stream create() {
    Stream stream;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking));
    return stream;
  }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  /// Work that it was given is still done.
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  cudaStream_t get() const { return stream_; }
  void wait() const { CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace nibble::cuda
