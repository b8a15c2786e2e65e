// DeviceContext: everything that belongs to one card: its facts, the ledger of its memory, its
// streams, and what kernels may have and reach there. A second card of the process has one of its
// own. Launcher and DeviceBuffer refer to it.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/device_ledger.h"
#include "backend/cuda/runtime/stream.h"
#include "base/result.h"

namespace nibble {
struct CardLimit;
struct DeviceMemory;
}  // namespace nibble

namespace nibble::cuda {

class DeviceContext {
 public:
  /// Opens the first card, or as much of its memory as `limit` leaves. It must outlive its buffers
  /// and launches. Errors: as open_device().
  static Result<std::unique_ptr<DeviceContext>> open(const CardLimit& limit);
  /// `facts` is the current device of this thread.
  DeviceContext(Device facts, const CardLimit& limit);
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;
  /// CHECKs that all memory was given back.
  ~DeviceContext();

  const Device& facts() const { return facts_; }
  DeviceLedger& ledger() { return ledger_; }
  const DeviceLedger& ledger() const { return ledger_; }
  /// The memory of the card: the ledger beside what the driver says.
  DeviceMemory memory() const;
  /// Makes it the current device of this thread, which calls below and CUDA's own need.
  void use() const;
  /// Errors: io, naming it, once it has failed and the process outlived that (device_memory.h).
  Result<void> alive() const;

  /// The stream that computes passes, and the one for what travels meanwhile. Neither waits for
  /// the default stream.
  cudaStream_t stream() const { return stream_.get(); }
  cudaStream_t copy_stream() const { return copy_stream_.get(); }

  /// Lets thread blocks of `kernel` have `bytes` of dynamic shared memory here, or more if that was
  /// asked before. Loads the kernel. Any thread.
  template <typename... Parameters>
  void allow_shared(void (*kernel)(Parameters...), int bytes) {
    allow_shared(reinterpret_cast<const void*>(kernel), bytes);
  }
  /// Thread blocks of `kernel` that one SM runs at once; at least one. Any thread.
  template <typename... Parameters>
  int resident_blocks(void (*kernel)(Parameters...), int threads, int shared_bytes = 0) {
    return resident_blocks(reinterpret_cast<const void*>(kernel), threads, shared_bytes);
  }

 private:
  void allow_shared(const void* kernel, int bytes);
  int resident_blocks(const void* kernel, int threads, int shared_bytes);

  Device facts_;
  int64_t limit_bytes_ = 0;  // the memory limit, context included; 0: none
  DeviceLedger ledger_;
  Stream stream_, copy_stream_;
  std::mutex mutex_;
  std::map<const void*, int> allowed_bytes_;                   // by kernel
  std::map<std::tuple<const void*, int, int>, int> resident_;  // by kernel, threads, shared bytes
};

}  // namespace nibble::cuda
