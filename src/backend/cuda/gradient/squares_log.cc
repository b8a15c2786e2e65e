// One copy brings all of a pass to the host.
#include "backend/cuda/gradient/squares_log.h"

#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {

Result<void> SquaresLog::use(double* memory, int64_t most, cudaStream_t stream) {
  memory_ = memory;
  most_ = most;
  stream_ = stream;
  values_ = TRY(PinnedBuffer::allocate(most * int64_t{sizeof(double)}, "squared lengths"));
  there_ = Event::create();
  return {};
}

void SquaresLog::begin() {
  used_ = 0;
  noted_.clear();
}

int64_t SquaresLog::reserve(int64_t count) {
  const int64_t place = used_;
  used_ += count;
  CHECK(used_ <= most_, "squared lengths ", used_, " of ", most_);
  return place;
}

int64_t SquaresLog::lengths(const float* x, const int32_t* gather, int32_t rows, int64_t width) {
  const int64_t place = reserve(rows);
  CUDA_CHECK(
      squared_lengths(x, gather, rows, static_cast<int32_t>(width), memory_ + place, stream_));
  return place;
}

int64_t SquaresLog::weighed(const WeighedRows& rows, int64_t lengths) {
  const int64_t place = reserve(rows.count);
  CUDA_CHECK(weigh_squares(rows, memory_ + lengths, memory_ + place, stream_));
  return place;
}

int64_t SquaresLog::labels(const LabelRows& rows, uint16_t* gradient) {
  const int64_t place = reserve(rows.rows);
  CUDA_CHECK(label_gradient(rows, gradient, memory_ + place, stream_));
  return place;
}

void SquaresLog::send(const SquaresSeen& seen) {
  CHECK(!seen_, "squared lengths of the pass before are not told");
  CUDA_CHECK(cudaMemcpyAsync(values_.as<double>(), memory_,
                             static_cast<size_t>(used_) * sizeof(double), cudaMemcpyDeviceToHost,
                             stream_));
  there_.record(stream_);
  seen_ = seen;
  std::swap(sent_, noted_);
}

void SquaresLog::tell() {
  if (!seen_) return;
  there_.wait();
  const auto part = [&](int64_t place, int64_t count) {
    return std::span<const double>(values_.as<double>() + place, static_cast<size_t>(count));
  };
  for (const Noted& one : sent_)
    if (one.count > 0)
      seen_({.linear = *one.linear,
             .rows = one.rows,
             .inputs = part(one.inputs, one.count),
             .gradients = part(one.gradients, one.count)});
  seen_ = {};
}

}  // namespace nibble::cuda
