// CUDA streams and events that own themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {

class Stream {
 public:
  Stream() = default;
  /// A stream of the current device, which does not wait for the default stream.
  static Stream create() {
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return Stream(stream);
  }
  cudaStream_t get() const { return stream_.get(); }
  void wait() const { CUDA_CHECK(cudaStreamSynchronize(get())); }

 private:
  /// Work that the stream was given is still done.
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  explicit Stream(cudaStream_t stream) : stream_(stream) {}
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> stream_;
};

/// A place in the work of a stream.
class Event {
 public:
  Event() = default;
  /// An event of the current device, without a time.
  static Event create() {
    cudaEvent_t event = nullptr;
    CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return Event(event);
  }
  void record(cudaStream_t stream) const { CUDA_CHECK(cudaEventRecord(event_.get(), stream)); }
  /// Waits until the work before the place is done; before record() there is none.
  void wait() const { CUDA_CHECK(cudaEventSynchronize(event_.get())); }
  /// Lets later work of `stream` begin no earlier.
  void hold(cudaStream_t stream) const { CUDA_CHECK(cudaStreamWaitEvent(stream, event_.get())); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  explicit Event(cudaEvent_t event) : event_(event) {}
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy> event_;
};

}  // namespace nibble::cuda
