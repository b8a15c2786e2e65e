// Token ids to rows of the embedding, and the angles of the pass.
#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/rope.h"
#include "tensor/fp8.h"

namespace nibble::cpu {

void embed_rows(const Context& context, const Batch& batch, Matrix& to) {
  const CpuWeights& weights = context.weights;
  auto own = batch.embeddings.begin();
  for (int row = 0; row < batch.rows(); ++row) {
    const int32_t token = batch.tokens[static_cast<size_t>(row)];
    float* out = to.row(row);
    if (own != batch.embeddings.end() && own->row == row) {
      const float* from =
          own->embedding != nullptr ? own->embedding : context.media.rows.row(own->place);
      std::copy_n(from, context.config.hidden, out);
      ++own;
    } else if (weights.embedding && weights.embedding->is_mapped()) {
      const TensorView& rows = weights.embedding->mapped;
      const int64_t cols = context.config.hidden;
      decode_plain(rows.data + dtype_bytes(rows.dtype, token * cols), rows.dtype, cols, out);
    } else if (weights.embedding) {
      dequantize_rows(weights.embedding->own, token, token + 1, out);
    } else {
      // Tied: unpacks padded columns too, which are zero as the row's own padding must be.
      context.kernels.unpack_row(weights.head.view(), token, out);
    }
  }
}

void embed(const Context& context, const Batch& batch) {
  Workspace& work = context.work;
  embed_rows(context, batch, work.hidden);
  if (context.config.count(LayerKind::attention) > 0)
    fill_angles(context.rope, batch, work.cos, work.sin);
}

}  // namespace nibble::cpu
