// One thread has one integer. All but page tables of long contexts is a block or two.
#include <algorithm>

#include "backend/cuda/ops/head/carry_tokens.h"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kBlocksMost = 64;

/// The choice that wrote `chosen` has ended: kernels on its stream do not begin before. The loads
/// go past the L1.
__global__ void __launch_bounds__(kThreads) carry_kernel(const __grid_constant__ CarryArgs a) {
  const int64_t threads = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.ints; i += threads) {
    int32_t value = __ldcv(a.from + i);
    const int64_t row = i - a.tokens_begin;
    if (row >= 0 && row < a.rows) {
      const int32_t carried = __ldcv(a.carried + row);
      if (carried >= 0) value = max(__ldcv(&a.chosen[carried].token), 0);
    }
    a.to[i] = value;
  }
}

}  // namespace

void carry_tokens(const CarryArgs& args, const Launcher& launcher) {
  const int64_t blocks = std::min((args.ints + kThreads - 1) / kThreads, kBlocksMost);
  launch(carry_kernel, launcher.in_order(), static_cast<unsigned>(blocks), kThreads, 0, args);
}

}  // namespace nibble::cuda
