// The same function as on a card, lane after lane.
#include "backend/cuda/ops/quantized/fp4_cases.h"

namespace nibble::cuda {

Fp4Sums fp4_on_host(const Fp4Case& of) {
  Fp4Lane lanes[32];
  for (int lane = 0; lane < 32; ++lane) lanes[lane] = fp4_case_lane(of, lane);
  const Fp4Operands operands{.left = [&](int lane, int word) { return lanes[lane].left[word]; },
                             .right = [&](int lane, int word) { return lanes[lane].right[word]; },
                             .left_scale = [&](int lane) { return lanes[lane].left_scale; },
                             .right_scale = [&](int lane) { return lanes[lane].right_scale; },
                             .arithmetic = Fp4Arithmetic{}};
  const Fp4Threads threads{of.selector / kFp4RightThreads, of.selector % kFp4RightThreads};
  Fp4Sums out;
  for (int lane = 0; lane < 32; ++lane) {
    float sums[4];
    for (int i = 0; i < 4; ++i) sums[i] = lanes[lane].sums[i];
    fp4_multiply(lane, threads, operands, sums);
    for (int i = 0; i < 4; ++i) out.of[i][lane] = sums[i];
  }
  return out;
}

}  // namespace nibble::cuda
