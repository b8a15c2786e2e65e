// A block has a row of logits and goes over it twice, each warp over segments of 128 numbers, every
// kLabelWarps-th of them. First the maximum and the sum of the exponentials; then the
// probabilities, stored as their negative in two parts, and the sum of each segment, in which the
// label is found; last the label's own number. Bound: bytes, the row read twice and written once.
#include "backend/cuda/ops/gradient/gradient_operands.h"
#include "backend/cuda/ops/gradient/gradient_parts.cuh"
#include "backend/cuda/ops/gradient/gradient_rows.h"
#include "backend/cuda/ptx/bf16.cuh"

namespace nibble::cuda {
namespace {

constexpr int kLabelWarps = 16;
constexpr int kLabelThreads = kLabelWarps * kWarp;
constexpr int kEach = 4;  // adjacent numbers of a lane
constexpr int kSegment = kEach * kWarp;
static_assert(kVocabularyMax / kSegment * sizeof(double) <= 40960);  // of shared memory

/// The threads of a row share this, and then the sums of its segments, double [segments].
struct LabelShared {
  double sums[kLabelWarps];
  double squares[kLabelWarps];
  float most[kLabelWarps];
  int label;
};

class LabelBlock {
 public:
  __device__ LabelBlock(const LabelRows& rows, uint16_t* gradient, LabelShared& shared,
                        double* segments)
      : rows_(rows),
        logits_(rows.logits + int64_t{blockIdx.x} * rows.vocabulary),
        out_(gradient + int64_t{blockIdx.x} * 2 * rows.padded),
        shared_(shared),
        segments_(segments),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        count_((rows.padded + kSegment - 1) / kSegment) {}

  __device__ void run(double random, double* square) {
    sum_exponentials();
    store_probabilities();
    find_label(random);
    if (warp_ == 0) finish(square);
  }

 private:
  /// Numbers of this lane in a segment; beyond the row -infinity, whose exponential is zero.
  __device__ void load(int segment, float (&x)[kEach]) const {
    const int at = segment * kSegment + lane() * kEach;
    if (rows_.vocabulary % kEach == 0) {
      float4 v = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      if (at < rows_.vocabulary) v = *reinterpret_cast<const float4*>(logits_ + at);
      x[0] = v.x;
      x[1] = v.y;
      x[2] = v.z;
      x[3] = v.w;
      return;
    }
    for (int i = 0; i < kEach; ++i) x[i] = at + i < rows_.vocabulary ? logits_[at + i] : -INFINITY;
  }

  /// Leaves the maximum in most_ and one over the sum in inverse_.
  __device__ void sum_exponentials() {
    float most = -INFINITY;
    double sum = 0;
    for (int s = warp_; s < count_; s += kLabelWarps) {
      float x[kEach];
      load(s, x);
      const float higher = fmaxf(most, fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])));
      if (higher == -INFINITY) continue;
      if (higher > most) sum *= static_cast<double>(expf(most - higher));
      most = higher;
      float part = 0.0F;
      for (int i = 0; i < kEach; ++i) part += expf(x[i] - most);
      sum += static_cast<double>(part);
    }
    float most_of_warp = most;
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2)
      most_of_warp = fmaxf(most_of_warp, __shfl_xor_sync(0xFFFFFFFFU, most_of_warp, step));
    if (lane() == 0) shared_.most[warp_] = most_of_warp;
    __syncthreads();
    most_ = shared_.most[0];
    for (int w = 1; w < kLabelWarps; ++w) most_ = fmaxf(most_, shared_.most[w]);
    sum = most == -INFINITY ? 0.0 : sum * static_cast<double>(expf(most - most_));
    sum = warp_sum_double(sum);
    if (lane() == 0) shared_.sums[warp_] = sum;
    __syncthreads();
    double total = 0;
    for (int w = 0; w < kLabelWarps; ++w) total += shared_.sums[w];
    inverse_ = 1.0 / total;
  }

  __device__ float probability(float x) const {
    return static_cast<float>(static_cast<double>(expf(x - most_)) * inverse_);
  }

  __device__ void store_probabilities() {
    double squares = 0;
    for (int s = warp_; s < count_; s += kLabelWarps) {
      float p[kEach];
      load(s, p);
      double sum = 0;
      for (int i = 0; i < kEach; ++i) {
        p[i] = probability(p[i]);
        sum += static_cast<double>(p[i]);
        squares += static_cast<double>(p[i]) * static_cast<double>(p[i]);
      }
      sum = warp_sum_double(sum);
      if (lane() == 0) segments_[s] = sum;
      store(s, p);
    }
    squares = warp_sum_double(squares);
    if (lane() == 0) shared_.squares[warp_] = squares;
    if (threadIdx.x == 0) shared_.label = rows_.vocabulary;
    __syncthreads();
  }

  /// In packed order (prefill_order.h) the four numbers of a lane are apart, and beside those of
  /// the next lane, with which it trades: even lanes store the first two of both.
  __device__ void store(int segment, const float (&p)[kEach]) {
    const bool odd = lane() % 2 != 0;
    const float first = __shfl_xor_sync(0xFFFFFFFFU, odd ? p[0] : p[2], 1);
    const float second = __shfl_xor_sync(0xFFFFFFFFU, odd ? p[1] : p[3], 1);
    const int column = segment * kSegment + lane() / 2 * 2 * kEach + (odd ? 2 : 0);
    if (column >= rows_.padded) return;
    store_pair(column, odd ? first : p[0], odd ? p[2] : first);
    store_pair(column + 1, odd ? second : p[1], odd ? p[3] : second);
  }
  /// Columns `column` and `column` + 4 are side by side.
  __device__ void store_pair(int column, float a, float b) {
    const uint32_t high = to_bf16_pair(-a, -b);
    const uint32_t low = to_bf16_pair(-a - low_bf16(high), -b - high_bf16(high));
    uint16_t* to = out_ + packed_position(column);
    *reinterpret_cast<uint32_t*>(to) = high;
    *reinterpret_cast<uint32_t*>(to + rows_.padded) = low;
  }

  /// The first warp finds in which lane's share of the segments the sum passes `random`, then the
  /// segment, then the number.
  __device__ void find_label(double random) {
    if (warp_ == 0) {
      const int each = (count_ + kWarp - 1) / kWarp;
      const int begin = min(lane() * each, count_), end = min(begin + each, count_);
      double sum = 0;
      for (int s = begin; s < end; ++s) sum += segments_[s];
      double before = 0;
      const int share = passing_lane(sum, random, before);
      if (share < kWarp) {
        int segment = share * each;
        const int last = min(segment + each, count_) - 1;
        for (; segment < last && before + segments_[segment] <= random; ++segment)
          before += segments_[segment];
        search(segment, before, random);
      }
    }
    __syncthreads();
    if (shared_.label < rows_.vocabulary) return;  // of the whole block
    take_likeliest();
  }
  /// The first lane with which the sum over the lanes passes `random`, or kWarp; `before` becomes
  /// the sum of all before it.
  static __device__ int passing_lane(double sum, double random, double& before) {
    for (int l = 0; l < kWarp; ++l) {
      const double after = before + __shfl_sync(0xFFFFFFFFU, sum, l);
      if (random < after) return l;
      before = after;
    }
    return kWarp;
  }
  /// A segment's sum has another order than that over its numbers, so that may end before: then it
  /// is the last.
  __device__ void search(int segment, double before, double random) {
    float p[kEach];
    load(segment, p);
    double sum = 0;
    for (int i = 0; i < kEach; ++i) {
      p[i] = probability(p[i]);
      sum += static_cast<double>(p[i]);
    }
    const int passing = passing_lane(sum, random, before);
    const int last = min((segment + 1) * kSegment, rows_.vocabulary) - 1;
    if (passing == kWarp && lane() == 0) shared_.label = last;
    if (passing != lane()) return;
    int place = 0;
    for (; place < kEach - 1; ++place) {
      before += static_cast<double>(p[place]);
      if (random < before) break;
    }
    shared_.label = min(segment * kSegment + lane() * kEach + place, last);
  }
  /// A minimum has no order, so the result is the same each time.
  __device__ void take_likeliest() {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < rows_.vocabulary; i += kLabelThreads)
      if (logits_[i] == most_) atomicMin(&shared_.label, i);
    __syncthreads();
  }

  __device__ void finish(double* square) {
    if (lane() != 0) return;
    double squares = 0;
    for (int w = 0; w < kLabelWarps; ++w) squares += shared_.squares[w];
    const int label = min(shared_.label, rows_.vocabulary - 1);  // NaN has no maximum
    const float p = probability(logits_[label]);
    const float value = 1.0F - p;
    uint16_t* to = out_ + packed_position(label);
    to[0] = to_bf16(value);
    to[rows_.padded] = to_bf16(value - from_bf16(to_bf16(value)));
    squares += static_cast<double>(value) * static_cast<double>(value) -
               static_cast<double>(p) * static_cast<double>(p);
    *square = isfinite(squares) ? squares : 0.0;
  }

  const LabelRows& rows_;
  const float* logits_;
  uint16_t* out_;
  LabelShared& shared_;
  double* segments_;
  int warp_;
  int count_;  // segments
  float most_ = 0.0F;
  double inverse_ = 0.0;
};

__global__ __launch_bounds__(kLabelThreads) void label_kernel(LabelRows rows, uint16_t* gradient,
                                                              double* squares) {
  extern __shared__ double segments[];
  __shared__ LabelShared shared;
  LabelBlock(rows, gradient, shared, segments).run(rows.random[blockIdx.x], squares + blockIdx.x);
}

}  // namespace

cudaError_t label_gradient(const LabelRows& rows, uint16_t* gradient, double* squares,
                           cudaStream_t stream) {
  if (rows.vocabulary > kVocabularyMax || rows.padded != step_columns(rows.vocabulary))
    return cudaErrorInvalidValue;
  const size_t bytes =
      static_cast<size_t>((rows.padded + kSegment - 1) / kSegment) * sizeof(double);
  label_kernel<<<static_cast<unsigned>(rows.rows), kLabelThreads, bytes, stream>>>(rows, gradient,
                                                                                   squares);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
