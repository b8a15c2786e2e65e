// The delta-net prefill's edges: convolution with SiLU and unit lengths, the inputs that the next
// pass needs, the gated norm. Bound: bytes; at T = 8192 and the 35B's 8,192 channels the
// convolution reads and writes 134 MB each, the norm moves 201 MB.
#include "backend/cuda/ops/delta_net/delta_chunk_parts.cuh"

namespace nibble::cuda {
namespace {

constexpr int kTaps = 4;
constexpr int kRunRows = 16;  // rows of one warp, so that inputs are read about once
constexpr float kUnitEps = 1e-6F;

/// fast_silu() is faster than silu(); prompt arithmetic uses it.
__device__ float fast_silu(float x) { return __fdividef(x, 1.0F + __expf(-x)); }

/// Loads kWidth adjacent channels of one lane as floats.
template <int kWidth>
__device__ void load_bf16(float (&to)[kWidth], const uint16_t* from) {
  if constexpr (kWidth == 4) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    to[0] = low_bf16(words.x);
    to[1] = high_bf16(words.x);
    to[2] = low_bf16(words.y);
    to[3] = high_bf16(words.y);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] = from_bf16(from[i]);
  }
}
template <int kWidth>
__device__ void store_bf16(uint16_t* to, const float (&from)[kWidth]) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(to_bf16_pair(from[0], from[1]), to_bf16_pair(from[2], from[3]));
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] = to_bf16(from[i]);
  }
}

/// RawRow has kWidth adjacent channels of a row as they are in memory.
template <int kWidth>
struct alignas(2 * kWidth) RawRow {
  uint16_t channel[kWidth];
};

/// Loads the inputs from `channel` on at row `i` of the chunk, which may precede it, or this pass.
template <int kWidth>
__device__ void load_input(const DeltaPrefill& in, const DeltaChunk& chunk, int i, int channel,
                           float (&x)[kWidth]) {
  if (i + chunk.history >= 0) {
    load_bf16(x, in.qkv + (chunk.row_begin + i) * in.qkv_stride + channel);
    return;
  }
  const int slot = in.sequences[chunk.sequence].state_in;
  const int j = kTaps - 1 + i + chunk.history;
  const float* from =
      in.state.conv + slot * in.state.slot_stride + int64_t{j} * channels_of(in.shape) + channel;
#pragma unroll
  for (int e = 0; e < kWidth; ++e) x[e] = from[e];
}

/// Sixteen rows of a chunk, the channels of one head: store(row, values) for each. unit 0: as they
/// are; else scaled to this length.
template <int kWidth, typename Store>
__device__ void convolve_run(const DeltaPrefill& in, const DeltaChunk& chunk, int first_channel,
                             float unit, Store store) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int row0 = static_cast<int>(threadIdx.x) / 32 * kRunRows;
  const int channel = first_channel + lane * kWidth;
  RawRow<kWidth> raw[kRunRows];
#pragma unroll
  for (int i = 0; i < kRunRows; ++i)
    if (row0 + i < chunk.rows)
      raw[i] = *reinterpret_cast<const RawRow<kWidth>*>(
          in.qkv + (chunk.row_begin + row0 + i) * in.qkv_stride + channel);
  float weight[kWidth][kTaps];
#pragma unroll
  for (int e = 0; e < kWidth; ++e)
#pragma unroll
    for (int j = 0; j < kTaps; ++j) weight[e][j] = in.conv_weight[(channel + e) * kTaps + j];
  float x[kTaps][kWidth];
#pragma unroll
  for (int j = 0; j < kTaps - 1; ++j)
    // A run past the end has no rows to read, nor does it need any.
    load_input(in, chunk, min(row0 - kTaps + 1 + j, chunk.rows - 1), channel, x[j + 1]);
#pragma unroll
  for (int i = 0; i < kRunRows; ++i) {
    float y[kWidth];
    float squares = 0.0F;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
#pragma unroll
      for (int j = 0; j < kTaps - 1; ++j) x[j][e] = x[j + 1][e];
      x[kTaps - 1][e] = from_bf16(raw[i].channel[e]);
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) sum += weight[e][j] * x[j][e];
      y[e] = row0 + i < chunk.rows ? fast_silu(sum) : 0.0F;
      squares += y[e] * y[e];
    }
    if (unit != 0.0F) {
      const float scale = unit * rsqrtf(warp_sum(squares) + kUnitEps);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) y[e] *= scale;
    }
    store(row0 + i, y);
  }
}

/// The grid is (chunks, 2 k_heads), queries first, then keys; four warps have 16 rows each.
template <int kWidth>
__global__ __launch_bounds__(kDeltaThreads) void convolve_unit_kernel(
    const __grid_constant__ DeltaArgs args) {
  const DeltaShape& shape = args.in.shape;
  const DeltaChunk chunk = args.in.chunks[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y);
  const bool query = head < shape.k_heads;
  const int64_t index = int64_t{blockIdx.x} * shape.k_heads + (query ? head : head - shape.k_heads);
  uint8_t* tile = (query ? args.work.q : args.work.k) + index * tile_bytes(32 * kWidth);
  const int column = (static_cast<int>(threadIdx.x) & 31) * kWidth;
  convolve_run<kWidth>(
      args.in, chunk, head * shape.k_dim, query ? rsqrtf(static_cast<float>(shape.k_dim)) : 1.0F,
      [&](int row, const float(&y)[kWidth]) {
        store_bf16(reinterpret_cast<uint16_t*>(tile + element_offset(row, column)), y);
      });
}

/// The grid is (chunks, v_heads).
template <int kWidth>
__global__ __launch_bounds__(kDeltaThreads) void convolve_value_kernel(
    const __grid_constant__ DeltaArgs args) {
  const DeltaShape& shape = args.in.shape;
  const DeltaChunk chunk = args.in.chunks[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y);
  uint16_t* v = args.work.v + (int64_t{blockIdx.x} * shape.v_heads + head) * kChunk * 32 * kWidth;
  const int column = (static_cast<int>(threadIdx.x) & 31) * kWidth;
  uint16_t* part = v + column / kValueColumns * kChunk * kValueColumns;
  convolve_run<kWidth>(args.in, chunk, 2 * shape.k_heads * shape.k_dim + head * shape.v_dim, 0.0F,
                       [&](int row, const float(&y)[kWidth]) {
                         store_bf16(part + row * kValueColumns + column % kValueColumns, y);
                       });
}

/// The last inputs of every sequence and snapshot. Grid (sequences, channels / 128). One thread
/// walks a sequence, so that a slot may be read and written in one pass.
__global__ void keep_inputs_kernel(DeltaPrefill in) {
  const DeltaSequence sequence = in.sequences[blockIdx.x];
  const int channel = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const int channels = channels_of(in.shape);
  if (channel >= channels) return;
  float old[kTaps - 1];
  for (int j = 0; j < kTaps - 1; ++j)
    old[j] =
        in.state.conv[sequence.state_in * in.state.slot_stride + int64_t{j} * channels + channel];
  const int first_row = in.chunks[sequence.chunk_begin].row_begin;
  for (int n = sequence.first_keep; n < sequence.chunk_count;) {
    const DeltaChunk chunk = in.chunks[sequence.chunk_begin + n];
    const int end = chunk.row_begin + chunk.rows - first_row;
    const bool last = n + 1 == sequence.chunk_count;
    for (int j = 0; j < kTaps - 1; ++j) {
      const int i = end - kTaps + 1 + j;
      const float value = i >= 0 ? from_bf16(in.qkv[(first_row + i) * in.qkv_stride + channel])
                                 : old[kTaps - 1 + i];
      const int64_t at = int64_t{j} * channels + channel;
      if (chunk.snapshot >= 0) in.state.conv[chunk.snapshot * in.state.slot_stride + at] = value;
      if (last) in.state.conv[sequence.state_out * in.state.slot_stride + at] = value;
    }
    n += chunk.next_keep;
  }
}

/// Columns column .. column + kWidth - 1 of a row, where the order wants them.
template <int kWidth>
__device__ void store_ordered(const DeltaPrefill& in, uint16_t* row, int column,
                              const float (&x)[kWidth]) {
  if (in.order == ColumnOrder::plain) {
    store_bf16(row + column, x);
  } else if constexpr (kWidth == 4) {
    // Columns c and c + 4, of two adjacent lanes, are adjacent there, so each lane writes two of
    // the four pairs.
    const bool odd = (threadIdx.x & 1) != 0;
    const float first = __shfl_xor_sync(kAllLanes, odd ? x[0] : x[2], 1);
    const float second = __shfl_xor_sync(kAllLanes, odd ? x[1] : x[3], 1);
    const int from = (column & ~4) + (odd ? 2 : 0);
    *reinterpret_cast<uint32_t*>(row + packed_position(from)) =
        odd ? to_bf16_pair(first, x[2]) : to_bf16_pair(x[0], first);
    *reinterpret_cast<uint32_t*>(row + packed_position(from + 1)) =
        odd ? to_bf16_pair(second, x[3]) : to_bf16_pair(x[1], second);
  } else {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) row[packed_position(column + e)] = to_bf16(x[e]);
  }
}

/// A warp computes out = norm(o) * w * silu(z) of one row and head. The grid is (chunks * 16,
/// v_heads).
template <int kWidth>
__global__ __launch_bounds__(kDeltaThreads) void gated_norm_kernel(DeltaArgs args) {
  const DeltaPrefill& in = args.in;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const DeltaChunk chunk = in.chunks[blockIdx.x / 16];
  const int i = static_cast<int>(blockIdx.x % 16 * 4 + threadIdx.x / 32);
  if (i >= chunk.rows) return;
  const int64_t row = chunk.row_begin + i;
  const int column = (static_cast<int>(blockIdx.y) * 32 + lane) * kWidth;
  float o[kWidth], z[kWidth];
  const int64_t tile = int64_t{blockIdx.x / 16} * in.shape.v_heads + blockIdx.y;
  load_bf16(o, args.work.o + (tile * kChunk + i) * 32 * kWidth + lane * kWidth);
  load_bf16(z, in.z + row * in.z_stride + column);
  float squares = 0.0F;
#pragma unroll
  for (int e = 0; e < kWidth; ++e) squares += o[e] * o[e];
  const float scale = rsqrtf(warp_sum(squares) / (32 * kWidth) + in.eps);
#pragma unroll
  for (int e = 0; e < kWidth; ++e)
    o[e] = o[e] * scale * in.norm_weight[lane * kWidth + e] * fast_silu(z[e]);
  store_ordered(in, in.out + row * in.out_stride, column, o);
}

}  // namespace

void launch_delta_inputs(const DeltaArgs& args, const Launcher& launcher) {
  const DeltaShape& shape = args.in.shape;
  const auto chunks = static_cast<unsigned>(args.group.chunk_count);
  with_value<1, 2, 4>(shape.k_dim / 32, [&]<int kWidth>() {
    launch(convolve_unit_kernel<kWidth>, launcher,
           dim3(chunks, static_cast<unsigned>(2 * shape.k_heads)), kDeltaThreads, 0, args);
  });
  with_value<1, 2, 4>(shape.v_dim / 32, [&]<int kWidth>() {
    launch(convolve_value_kernel<kWidth>, launcher,
           dim3(chunks, static_cast<unsigned>(shape.v_heads)), kDeltaThreads, 0, args);
  });
}

void launch_delta_keep(const DeltaPrefill& prefill, const Launcher& launcher) {
  if (prefill.sequence_count == 0) return;
  const dim3 grid(static_cast<unsigned>(prefill.sequence_count),
                  static_cast<unsigned>((channels_of(prefill.shape) + 127) / 128));
  launch(keep_inputs_kernel, launcher, grid, 128, 0, prefill);
}

void launch_delta_outputs(const DeltaArgs& args, const Launcher& launcher) {
  if (args.in.z == nullptr) return;
  const dim3 grid(static_cast<unsigned>(args.group.chunk_count) * 16,
                  static_cast<unsigned>(args.in.shape.v_heads));
  with_value<1, 2, 4>(args.in.shape.v_dim / 32, [&]<int kWidth>() {
    launch(gated_norm_kernel<kWidth>, launcher, grid, kDeltaThreads, 0, args);
  });
}

}  // namespace nibble::cuda
