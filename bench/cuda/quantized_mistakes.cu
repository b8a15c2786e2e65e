// Mistakes in layouts of operands, planted before the instruction (for 4-bit codes before the
// software that stands in for it): the product of a kernel with one of them must not pass.
#include <string>

#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/checks/quantized_product.h"
#include "backend/cuda/ops/quantized/quantized_tile.cuh"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "quantized_mistakes.h"

namespace nibble::bench {
namespace {

using namespace nibble::cuda;
using namespace nibble::checks;

enum class Mistake : uint8_t {
  none,
  left_nibbles,  // two codes of a byte, or of two bytes
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
                                     "neighbours of W",
                                     "neighbours of x",
                                     "halves of W",
                                     "halves of x",
                                     "rows 8 apart",
                                     "bytes of W's scales",
                                     "bytes of x's scales",
                                     "lanes of W's scales",
                                     "lanes of x's scales",
                                     "thread-id-a",
                                     "thread-id-b"};

/// Plants what needs no scales. `swap` swaps neighbours of a word.
template <Mistake kMistake, typename Swap>
__device__ __forceinline__ void plant(uint32_t (&l)[4], uint32_t (&r)[2], const Swap& swap) {
  const auto exchange = [](uint32_t& a, uint32_t& b) {
    const uint32_t kept = a;
    a = b;
    b = kept;
  };
  if constexpr (kMistake == Mistake::left_nibbles) l[2] = swap(l[2]);
  if constexpr (kMistake == Mistake::right_nibbles) r[1] = swap(r[1]);
  if constexpr (kMistake == Mistake::left_depth) exchange(l[0], l[2]);
  if constexpr (kMistake == Mistake::right_depth) exchange(r[0], r[1]);
  if constexpr (kMistake == Mistake::left_rows) exchange(l[2], l[3]);
}

template <Mistake kMistake>
struct PlantedFp8 : Fp8Operands {
  template <int, int>
  static __device__ __forceinline__ void multiply(float* d, const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1, uint32_t, uint32_t) {
    uint32_t l[4] = {a[0], a[1], a[2], a[3]};
    uint32_t r[2] = {b0, b1};
    plant<kMistake>(l, r, [](uint32_t w) { return __byte_perm(w, 0, 0x2301); });
    mma_e4m3(d, l, r[0], r[1]);
  }
};

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
    plant<kMistake>(l, r, swap_nibbles);
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

template <typename Operands>
QuantizedVerdict verdict_with(const QuantizedProduct& p, const Launcher& launcher) {
  const auto launch_it = [&](const QuantizedGemm& gemm) {
    const auto kernel = quantized_kernel<Operands, QuantizedOutput::f32, kQuantizedManyTokens>;
    const int shared = quantized_shared_bytes(Operands::kFormat, kQuantizedManyTokens);
    must(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
         "shared memory");
    launch(
        kernel, launcher.in_order(), 4, kQuantizedThreads, static_cast<size_t>(shared),
        QuantizedArgs{.gemm = gemm,
                      .k_steps = gemm.weight.cols / quantized_step_columns(Operands::kFormat),
                      .row_tiles = (gemm.weight.rows + kQuantizedTileRows - 1) / kQuantizedTileRows,
                      .parts = (gemm.rows + kQuantizedManyTokens - 1) / kQuantizedManyTokens});
  };
  return judge(p, run(p, launch_it));
}

void report(Tally& tally, const char* format, Mistake mistake, const QuantizedProduct& p,
            const QuantizedVerdict& verdict) {
  tally.check(
      verdict.fine(p) == (mistake == Mistake::none),
      (std::string("planted, ") + format + ": " + kMistakes[static_cast<int>(mistake)]).c_str(),
      verdict.error);
}

template <int kNumber = 0>
void check_mistakes(Tally& tally, const QuantizedProduct& p, const Launcher& launcher) {
  if constexpr (kNumber <= static_cast<int>(Mistake::right_thread)) {
    constexpr auto kMistake = static_cast<Mistake>(kNumber);
    report(tally, "4-bit codes", kMistake, p,
           verdict_with<Nvfp4Operands<Planted<kMistake>>>(p, launcher));
    check_mistakes<kNumber + 1>(tally, p, launcher);
  }
}

template <int kNumber = 0>
void check_fp8_mistakes(Tally& tally, const QuantizedProduct& p, const Launcher& launcher) {
  if constexpr (kNumber <= static_cast<int>(Mistake::left_rows)) {
    constexpr auto kMistake = static_cast<Mistake>(kNumber);
    report(tally, "FP8", kMistake, p, verdict_with<PlantedFp8<kMistake>>(p, launcher));
    check_fp8_mistakes<kNumber + 1>(tally, p, launcher);
  }
}

}  // namespace

void check_planted_mistakes(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  const QuantizedProduct p = dense({}, {100, 200, 512}, QuantizedOutput::f32, Numbers::any);
  check_mistakes(tally, p, launcher);
  free_sides(p);
}

void check_planted_fp8_mistakes(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  if (!launcher.card.converts_fp8()) return;
  const SideFormat kind{Format::fp8, FactorLayout::scalar, ActivationFormat::fp8_tensor};
  const QuantizedProduct p = dense(kind, {100, 200, 512}, QuantizedOutput::f32, Numbers::any);
  check_fp8_mistakes(tally, p, launcher);
  free_sides(p);
}

}  // namespace nibble::bench
