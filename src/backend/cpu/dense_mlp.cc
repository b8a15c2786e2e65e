// h += (silu(x Gate^T) * (x Up^T)) Down^T with x = norm(h).
#include "backend/cpu/context.h"
#include "backend/cpu/split.h"

namespace nibble::cpu {

void dense_mlp_block(const Context& context, const LayerWeights& weights, const Batch& batch) {
  Workspace& work = context.work;
  const MlpWeights& mlp = weights.dense_mlp;
  const int64_t rows = batch.rows();
  norm_hidden(context, weights.post_norm, rows);
  const LinearCall inputs[] = {product(mlp.gate, work.normed, work.gate, rows),
                               product(mlp.up, work.normed, work.up, rows)};
  context.linears.run(inputs);
  const int width = context.config.dense_width;
  split(context.pool, rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      context.kernels.swiglu(work.gate.row(r), work.up.row(r), work.act.row(r), width);
  });
  LinearCall down = product(mlp.down, work.act, work.hidden, rows);
  down.add = true;
  context.linears.run({&down, 1});
}

}  // namespace nibble::cpu
