// The norm in front of every block.
#include "backend/cpu/context.h"
#include "backend/cpu/split.h"

namespace nibble::cpu {

void norm_hidden(const Context& context, const std::vector<float>& weight, int64_t rows) {
  Workspace& work = context.work;
  const int n = context.config.hidden;
  split(context.pool, rows, n / 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      context.kernels.rms_norm({.x = work.hidden.row(r),
                                .w = weight.data(),
                                .y = work.normed.row(r),
                                .n = n,
                                .eps = context.config.rms_eps});
  });
}

LinearCall product(const PackedLinear& weight, Matrix& x, Matrix& y, int64_t rows) {
  return {.weight = &weight,
          .x = x.data(),
          .x_stride = x.stride(),
          .rows = rows,
          .y = y.data(),
          .y_stride = y.stride()};
}

}  // namespace nibble::cpu
