// Final norm and logits of the rows that want them.
#include <algorithm>

#include "backend/cpu/context.h"

namespace nibble::cpu {

LinearCall head_product(const PackedLinear& head, HeadMemory& memory, int64_t rows) {
  return {.weight = &head,
          .x = memory.in.data(),
          .x_stride = memory.in.stride(),
          .rows = rows,
          .y = reinterpret_cast<float*>(memory.logits.data()),
          .y_stride = head.rows()};
}

HeadOutput head(const Context& context, const Batch& batch) {
  Workspace& work = context.work;
  const int n = context.config.hidden;
  const auto rows = static_cast<int64_t>(batch.logit_rows.size());
  HeadMemory& memory = work.head_of(context.config, rows);
  auto* hidden = reinterpret_cast<float*>(memory.hidden.data());
  for (int64_t r = 0; r < rows; ++r) {
    context.kernels.rms_norm({.x = work.hidden.row(batch.logit_rows[static_cast<size_t>(r)]),
                              .w = context.weights.final_norm.data(),
                              .y = memory.in.row(r),
                              .n = n,
                              .eps = context.config.rms_eps});
    std::copy_n(memory.in.row(r), n, hidden + r * n);
  }
  const auto* logits = reinterpret_cast<const float*>(memory.logits.data());
  const int64_t vocab = context.config.vocab_rows;
  const LinearCall call = head_product(context.weights.head, memory, rows);
  if (rows > 0) context.linears.run({&call, 1});
  return {.logits = {logits, static_cast<size_t>(rows * vocab)},
          .hidden = {hidden, static_cast<size_t>(rows * n)}};
}

}  // namespace nibble::cpu
