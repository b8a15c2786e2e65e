// Computes h = rows of the embedding in F32 and x = norm(h) for the first block. One block of
// threads has one row.
#include "backend/cuda/ops/embed/embed.h"
#include "backend/cuda/ops/norm/norm.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/weights/code_words.h"

namespace nibble::cuda {
namespace {

__device__ __forceinline__ float e4m3_value(uint32_t code) {
  const float value = __uint_as_float((code & 0x7FU) << 20) * 0x1p120F;
  return code & 0x80U ? -value : value;
}

__device__ __forceinline__ float e2m1_value(uint32_t code) {
  const float value = __uint_as_float((code & 7U) << 22) * 0x1p126F;
  return code & 8U ? -value : value;
}

__device__ __forceinline__ float element(const DeviceLinear& w, int64_t row, int column) {
  const uint8_t* values = w.values + row * value_bytes(w.format, w.cols);
  if (w.format == Format::bf16) return from_bf16(reinterpret_cast<const uint16_t*>(values)[column]);
  if (w.format == Format::nvfp4) {
    const uint32_t code = e2m1_code(reinterpret_cast<const uint32_t*>(values), column);
    const float scale = e4m3_value(w.scales[row * (w.cols / 16) + column / 16]);
    return e2m1_value(code) * scale * w.factors[0];
  }
  const float value = e4m3_value(e4m3_code(reinterpret_cast<const uint32_t*>(values), column));
  if (w.layout == FactorLayout::scalar) return value * w.factors[0];
  if (w.layout == FactorLayout::row) return value * w.factors[row];
  return value * w.factors[row / 128 * (w.cols / 128) + column / 128];
}

template <int kWidth>
__global__ void __launch_bounds__(kNormThreads) embed_kernel(const __grid_constant__ EmbedArgs a) {
  __shared__ NormScratch<kWidth> scratch;
  wait_for_inputs();
  const int row = blockIdx.x;
  const int64_t token = a.batch.tokens[row];
  RowPart<kWidth> h;
#pragma unroll
  for (int g = 0; g < RowPart<kWidth>::kGroups; ++g) {
    const int column = RowPart<kWidth>::column(g);
    if (column >= a.hidden) continue;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) h.v[g][i] = element(a.table, token, column + i);
    store_columns(h.v[g], a.h + static_cast<int64_t>(row) * a.hidden + column);
  }
  const InputOrder order = row < a.packed_from ? InputOrder::placed : InputOrder::packed;
  norm_row(h, a.hidden, load_part<kWidth>(a.norm, a.hidden), a.eps, order, a.x + row * a.x_stride,
           nullptr, scratch);
}

}  // namespace

void embed(const EmbedArgs& args, const Launcher& launcher) {
  launch(args.hidden % 4 == 0 ? embed_kernel<4> : embed_kernel<1>, launcher,
         static_cast<unsigned>(args.batch.rows), kNormThreads, 0, args);
}

}  // namespace nibble::cuda
