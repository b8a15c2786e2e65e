// CUDA streams and events that own themselves.
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

/// A place in the work of a stream.
class Event {
 public:
  Event() = default;
  /// An event of the current device, without a time.
  static Event create() {
    Event event;
    CUDA_CHECK(cudaEventCreateWithFlags(&event.event_, cudaEventDisableTiming));
    return event;
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  void record(cudaStream_t stream) const { CUDA_CHECK(cudaEventRecord(event_, stream)); }
  void wait() const { CUDA_CHECK(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace nibble::cuda
