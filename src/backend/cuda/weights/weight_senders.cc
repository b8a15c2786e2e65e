// A sender that is given back keeps its pages locked.
#include "backend/cuda/weights/weight_senders.h"

#include <utility>

namespace nibble::cuda {

Result<std::unique_ptr<WeightSender>> WeightSender::open() {
  std::unique_ptr<WeightSender> sender(new WeightSender);
  sender->buffer_ = TRY(PinnedBuffer::allocate(2 * kBufferBytes, "reading weights"));
  sender->stream_ = Stream::create();
  for (Event& event : sender->sent_) event = Event::create();
  return sender;
}

WeightSender::~WeightSender() {
  if (stream_.get() != nullptr) cudaStreamSynchronize(stream_.get());
}

std::span<std::byte> WeightSender::next_buffer() {
  half_ ^= 1;
  sent_[half_].wait();
  return buffer_.part(static_cast<int64_t>(half_) * kBufferBytes, kBufferBytes);
}

Result<std::unique_ptr<WeightSender>> WeightSenders::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<WeightSender> sender = std::move(free_.back());
      free_.pop_back();
      return sender;
    }
  }
  return WeightSender::open();
}

void WeightSenders::give(std::unique_ptr<WeightSender> sender) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(sender));
}

}  // namespace nibble::cuda
