// Computes h = rows of the embedding in F32 and x = norm(h) for the first block. One block of
// threads has one row.
#include "backend/cuda/ops/embed/embed.h"
#include "backend/cuda/ops/embed/embedding_row.cuh"
#include "backend/cuda/ops/norm/norm.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

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
    for (int i = 0; i < kWidth; ++i)
      h.v[g][i] = input_number(a.table, a.batch, token, column + i, a.hidden);
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
