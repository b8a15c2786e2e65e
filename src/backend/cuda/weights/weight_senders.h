// WeightSenders: the page-locked buffers through which threads bring weights from files to a card.
// Who reads layer after layer keeps them: to lock the pages anew for each takes longer than to
// send a layer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/stream.h"
#include "base/result.h"

namespace nibble::cuda {

/// Two buffers and the stream that empties them; one thread at a time uses it.
class WeightSender {
 public:
  static constexpr int64_t kBufferBytes = int64_t{8} << 20;

  /// Takes memory for the current device of this thread. Errors: no_memory.
  static Result<std::unique_ptr<WeightSender>> open();
  ~WeightSender();
  WeightSender(const WeightSender&) = delete;
  WeightSender& operator=(const WeightSender&) = delete;

  /// The buffer that was filled longest ago, once the stream has emptied it.
  std::span<std::byte> next_buffer();
  /// Copies from that buffer that were given to the stream have ended before it comes again.
  void sent() { sent_[half_].record(stream_.get()); }
  cudaStream_t stream() const { return stream_.get(); }
  /// Waits for all that was sent.
  void finish() { stream_.wait(); }

 private:
  WeightSender() = default;

  PinnedBuffer buffer_;
  Stream stream_;
  std::array<Event, 2> sent_;
  size_t half_ = 0;
};

/// There are as many as threads that read at once, all for one card, which outlives them. Any
/// thread may call.
class WeightSenders {
 public:
  /// One that nobody uses, or a new one. Errors: no_memory.
  Result<std::unique_ptr<WeightSender>> take();
  /// After finish().
  void give(std::unique_ptr<WeightSender> sender);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WeightSender>> free_;
};

}  // namespace nibble::cuda
