// The kernels of fp4_proof.h. Those in software are there for every card.
#include "backend/cuda/ops/quantized/fp4_proof.h"
#include "backend/cuda/ptx/fp4_mma.cuh"
#include "backend/cuda/ptx/fp8_mma.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {
namespace {

/// A rounded sum may lie so far from the other, in parts of the largest sum of products: the manual
/// does not say how the machine rounds.
constexpr float kRounding = 0x1p-10F;

template <typename Mma, int kNumber = 0>
__device__ __forceinline__ void multiply_as(int selector, Fp4Lane& lane) {
  if constexpr (kNumber < kFp4Selectors) {
    if (selector == kNumber)
      Mma::template multiply<kNumber / kFp4RightThreads, kNumber % kFp4RightThreads>(
          lane.sums, lane.left, lane.right[0], lane.right[1], lane.left_scale, lane.right_scale);
    else
      multiply_as<Mma, kNumber + 1>(selector, lane);
  }
}

template <typename Mma>
__global__ void __launch_bounds__(32) fragments_kernel(Fp4Trial trial) {
  const int lane = static_cast<int>(threadIdx.x);
  const int item = static_cast<int>(blockIdx.x);
  const Fp4Case of = fp4_case(trial.first + item * trial.step);
  Fp4Lane registers = fp4_case_lane(of, lane);
  multiply_as<Mma>(of.selector, registers);
#pragma unroll
  for (int i = 0; i < 4; ++i) trial.sums[item].of[i][lane] = registers.sums[i];
}

/// Plants a fault in the operands.
__device__ __forceinline__ void plant(Fp4Fault fault, int number, Fp4Case& of, Fp4Lane& lane) {
  if (fault == Fp4Fault::scales)
    of.selector =
        of.selector / kFp4RightThreads * kFp4RightThreads + (of.selector + 1) % kFp4RightThreads;
  if (fault == Fp4Fault::lost_code && number % 64 == 0) lane.left[0] &= ~15U;
}

template <typename Mma>
__global__ void __launch_bounds__(32) compare_kernel(Fp4Differences* found, Fp4Fault fault) {
  const int lane = static_cast<int>(threadIdx.x);
  const int number = static_cast<int>(blockIdx.x);
  Fp4Case of = fp4_case(number);
  Fp4Lane truth = fp4_case_lane(of, lane);
  Fp4Lane tried = truth;
  multiply_as<SoftwareFp4>(of.selector, truth);
  plant(fault, number, of, tried);
  multiply_as<Mma>(of.selector, tried);
  if (fault == Fp4Fault::last_bit && number == fp4_cases() / 2 && lane == 5)
    tried.sums[2] = __uint_as_float(__float_as_uint(tried.sums[2]) ^ 1U);
  float largest = 0.0F;
  for (const float sum : truth.sums) largest = fmaxf(largest, fabsf(sum));
  const bool rounded = Mma::kMachine && of.kind == Fp4CaseKind::any;
  const float slack = rounded ? kRounding * warp_max(largest) : 0.0F;
  unsigned different = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float want = truth.sums[i];
    const float got = tried.sums[i];
    const bool same = isnan(want) ? isnan(got)
                      : rounded   ? fabsf(got - want) <= slack  // NaN fails
                                  : __float_as_uint(got) == __float_as_uint(want);
    different += same ? 0 : 1;
  }
  const unsigned all = __reduce_add_sync(kAllLanes, different);
  if (lane != 0 || all == 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&found->sums), all);
  atomicMin(&found->first_case, number);
}

__device__ __forceinline__ int sum_row(int i, int lane) { return lane / 4 + 8 * (i / 2); }
__device__ __forceinline__ int sum_column(int i, int lane) { return 2 * (lane % 4) + i % 2; }

/// The fragments of a case, as fp8_mma.cuh lays them.
struct Fp8Lane {
  uint32_t left[4] = {};
  uint32_t right[2] = {};
  float sums[4];

  __device__ Fp8Lane(const Fp8Case& of, int lane) {
    for (int byte = 0; byte < 4; ++byte) {
      const int k = 4 * (lane % 4) + byte;
      for (int i = 0; i < 4; ++i)
        left[i] |= fp8_left_code(of, lane / 4 + 8 * (i % 2), k + 16 * (i / 2)) << (8 * byte);
      for (int i = 0; i < 2; ++i)
        right[i] |= fp8_right_code(of, k + 16 * i, lane / 4) << (8 * byte);
    }
    for (int i = 0; i < 4; ++i) sums[i] = fp8_start(of, sum_row(i, lane), sum_column(i, lane));
  }
};

__global__ void __launch_bounds__(32) compare_fp8_kernel(Fp4Differences* found, Fp4Fault fault) {
#ifdef NIBBLE_HAS_FP8_MMA
  const int lane = static_cast<int>(threadIdx.x);
  const int number = static_cast<int>(blockIdx.x);
  const Fp8Case of = fp8_case(number);
  Fp8Lane tried(of, lane);
  if (fault == Fp4Fault::lost_code && number % 64 == 1) tried.left[0] &= ~0xFFU;
  mma_e4m3(tried.sums, tried.left, tried.right[0], tried.right[1]);
  if (fault == Fp4Fault::last_bit && number == kFp8Pairs + 1 && lane == 5)
    tried.sums[2] = __uint_as_float(__float_as_uint(tried.sums[2]) ^ 1U);
  unsigned different = 0;
  for (int i = 0; i < 4; ++i) {
    const Fp8Sum want = fp8_sum(of, sum_row(i, lane), sum_column(i, lane));
    const double got = tried.sums[i];
    const double slack = of.kind == Fp8CaseKind::any ? kRounding * want.magnitude : 0.0;
    const bool same = isnan(want.value) ? isnan(got) : fabs(got - want.value) <= slack;
    different += same ? 0 : 1;  // NaN where there must be none fails
  }
  const unsigned all = __reduce_add_sync(kAllLanes, different);
  if (lane != 0 || all == 0) return;
  atomicAdd(reinterpret_cast<unsigned long long*>(&found->sums), all);
  atomicMin(&found->first_case, fp4_cases() + number);
#endif
}

bool by_machine(const Launcher& launcher) {
  CHECK(launcher.card.fp4 != Architecture::Fp4::off, "a card that does not multiply 4-bit codes");
  return launcher.card.fp4 == Architecture::Fp4::machine;
}

}  // namespace

void multiply_fragments(const Fp4Trial& trial, const Launcher& launcher) {
  launch(by_machine(launcher) ? fragments_kernel<MachineFp4> : fragments_kernel<SoftwareFp4>,
         launcher.in_order(), static_cast<unsigned>(trial.count), 32, 0, trial);
}

void compare_fragments(Fp4Differences* found, Fp4Fault fault, const Launcher& launcher) {
  launch(by_machine(launcher) ? compare_kernel<MachineFp4> : compare_kernel<SoftwareFp4>,
         launcher.in_order(), static_cast<unsigned>(fp4_cases()), 32, 0, found, fault);
}

void compare_fp8_fragments(Fp4Differences* found, Fp4Fault fault, const Launcher& launcher) {
  if (!launcher.card.converts_fp8()) return;
  launch(compare_fp8_kernel, launcher.in_order(), static_cast<unsigned>(fp8_cases()), 32, 0, found,
         fault);
}

}  // namespace nibble::cuda
