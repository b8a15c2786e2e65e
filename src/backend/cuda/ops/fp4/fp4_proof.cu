// The kernels of fp4_proof.h. The one in software is there for every card.
#include "backend/cuda/ops/fp4/fp4_proof.h"
#include "backend/cuda/ptx/fp4_mma.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {
namespace {

template <typename Mma, int kLeftThread, int kRightThread>
__device__ __forceinline__ void multiply(Fp4Warp& warp) {
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t a[4];
  float d[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    a[i] = warp.left[i][lane];
    d[i] = warp.sums[i][lane];
  }
  Mma::template multiply<kLeftThread, kRightThread>(d, a, warp.right[0][lane], warp.right[1][lane],
                                                    warp.left_scale[lane], warp.right_scale[lane]);
#pragma unroll
  for (int i = 0; i < 4; ++i) warp.sums[i][lane] = d[i];
}

template <typename Mma, int kNumber = 0>
__device__ __forceinline__ void multiply_as(int number, Fp4Warp& warp) {
  if constexpr (kNumber < kFp4LeftThreads * kFp4RightThreads) {
    if (number == kNumber)
      multiply<Mma, kNumber / kFp4RightThreads, kNumber % kFp4RightThreads>(warp);
    else
      multiply_as<Mma, kNumber + 1>(number, warp);
  }
}

template <typename Mma>
__global__ void __launch_bounds__(32) fragments_kernel(Fp4Warp* warps) {
  const int warp = static_cast<int>(blockIdx.x);
  multiply_as<Mma>(warp % (kFp4LeftThreads * kFp4RightThreads), warps[warp]);
}

}  // namespace

void multiply_fragments(Fp4Warp* warps, int32_t count, const Launcher& launcher) {
  CHECK(launcher.card.fp4 != Architecture::Fp4::off, "a card that does not multiply 4-bit codes");
  const bool machine = launcher.card.fp4 == Architecture::Fp4::machine;
  launch(machine ? fragments_kernel<MachineFp4> : fragments_kernel<SoftwareFp4>,
         launcher.in_order(), static_cast<unsigned>(count), 32, 0, warps);
}

}  // namespace nibble::cuda
