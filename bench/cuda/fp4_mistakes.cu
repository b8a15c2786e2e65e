// Mistakes in layouts of operands, planted in the software that stands in for the instruction: the
// product of a kernel with one of them must not pass.
#include <string>

#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/checks/fp4_product.h"
#include "backend/cuda/ops/fp4/fp4_tile.cuh"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "fp4_mistakes.h"

namespace nibble::bench {
namespace {

using namespace nibble::cuda;
using namespace nibble::checks;

enum class Mistake : uint8_t {
  none,
  left_nibbles,  // two codes of a byte
  right_nibbles,
  left_depth,  // the halves of the 64 columns
  right_depth,
  left_rows,         // rows r and r + 8
  left_scale_bytes,  // scales of two groups
  right_scale_bytes,
  left_scale_lanes,   // scales of rows r and r + 8
  right_scale_lanes,  // scales of two tokens
  left_thread,        // the pair of lanes that gives scales
  right_thread,       // the lane
};
constexpr const char* kMistakes[] = {"none",
                                     "codes of a byte of W",
                                     "codes of a byte of x",
                                     "halves of W",
                                     "halves of x",
                                     "rows 8 apart",
                                     "bytes of W's scales",
                                     "bytes of x's scales",
                                     "lanes of W's scales",
                                     "lanes of x's scales",
                                     "thread-id-a",
                                     "thread-id-b"};

template <Mistake kMistake>
struct Planted {
  static constexpr bool kMachine = SoftwareFp4::kMachine;
  template <int kLeftThread, int kRightThread>
  static __device__ __forceinline__ void multiply(float* d, const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1, uint32_t left_scales,
                                                  uint32_t right_scales) {
    const auto swap_nibbles = [](uint32_t w) {
      return (w & 0xF0F0F0F0U) >> 4 | (w & 0x0F0F0F0FU) << 4;
    };
    uint32_t l[4] = {a[0], a[1], a[2], a[3]};
    uint32_t r[2] = {b0, b1};
    if constexpr (kMistake == Mistake::left_nibbles) l[2] = swap_nibbles(l[2]);
    if constexpr (kMistake == Mistake::right_nibbles) r[1] = swap_nibbles(r[1]);
    if constexpr (kMistake == Mistake::left_depth) {
      l[0] = a[2];
      l[2] = a[0];
    }
    if constexpr (kMistake == Mistake::right_depth) {
      r[0] = b1;
      r[1] = b0;
    }
    if constexpr (kMistake == Mistake::left_rows) {
      l[2] = a[3];
      l[3] = a[2];
    }
    if constexpr (kMistake == Mistake::left_scale_bytes)
      left_scales = __byte_perm(left_scales, 0, 0x3201);
    if constexpr (kMistake == Mistake::right_scale_bytes)
      right_scales = __byte_perm(right_scales, 0, 0x2310);
    if constexpr (kMistake == Mistake::left_scale_lanes)
      left_scales = __shfl_xor_sync(kAllLanes, left_scales, 1);
    if constexpr (kMistake == Mistake::right_scale_lanes)
      right_scales = __shfl_xor_sync(kAllLanes, right_scales, 4);
    constexpr int kLeft = kMistake == Mistake::left_thread ? 1 - kLeftThread : kLeftThread;
    constexpr int kRight =
        kMistake == Mistake::right_thread ? (kRightThread + 1) % kFp4RightThreads : kRightThread;
    SoftwareFp4::multiply<kLeft, kRight>(d, l, r[0], r[1], left_scales, right_scales);
  }
};

template <Mistake kMistake>
void check_mistake(Tally& tally, const Fp4Product& p, const Launcher& launcher) {
  const Fp4Outcome result = run(p, [&](const Fp4Gemm& gemm) {
    const auto kernel = fp4_kernel<Planted<kMistake>, Fp4Output::f32, kFp4ManyTokens>;
    const int shared = fp4_shared_bytes(kFp4ManyTokens);
    must(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
         "shared memory");
    launch(kernel, launcher.in_order(), 4, kFp4Threads, static_cast<size_t>(shared),
           Fp4Args{.gemm = gemm,
                   .k_steps = gemm.weight.cols / kFp4StepColumns,
                   .row_tiles = (gemm.weight.rows + kFp4TileRows - 1) / kFp4TileRows,
                   .parts = (gemm.rows + kFp4ManyTokens - 1) / kFp4ManyTokens});
  });
  const Fp4Verdict verdict = judge(p, result);
  tally.check(verdict.fine(p) == (kMistake == Mistake::none),
              (std::string("planted: ") + kMistakes[static_cast<int>(kMistake)]).c_str(),
              verdict.error);
}

template <int kNumber = 0>
void check_mistakes(Tally& tally, const Fp4Product& p, const Launcher& launcher) {
  if constexpr (kNumber <= static_cast<int>(Mistake::right_thread)) {
    check_mistake<static_cast<Mistake>(kNumber)>(tally, p, launcher);
    check_mistakes<kNumber + 1>(tally, p, launcher);
  }
}

}  // namespace

void check_planted_mistakes(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  const Fp4Product p = dense({100, 200, 512}, Fp4Output::f32, Numbers::any);
  check_mistakes(tally, p, launcher);
  free_sides(p);
}

}  // namespace nibble::bench
