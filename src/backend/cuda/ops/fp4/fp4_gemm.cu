// This file launches the products of 4-bit codes; the kernel is fp4_tile.cuh.
#include "backend/cuda/ops/fp4/fp4_tile.cuh"
#include "backend/cuda/ops/linear/linear_select.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {
namespace {

using Kernel = void (*)(Fp4Args);

template <typename Mma>
Kernel kernel_with(const Fp4Plan& plan) {
  return with_value<Fp4Output::bf16, Fp4Output::f32, Fp4Output::add, Fp4Output::swiglu>(
      plan.output, [&]<Fp4Output kOutput>() -> Kernel {
        return with_value<kFp4FewTokens, kFp4ManyTokens>(plan.tokens, [&]<int kTokens>() -> Kernel {
          return fp4_kernel<Mma, kOutput, kTokens>;
        });
      });
}
Kernel kernel_of(const Fp4Plan& plan) {
  return plan.matrix == Architecture::Fp4::machine ? kernel_with<MachineFp4>(plan)
                                                   : kernel_with<SoftwareFp4>(plan);
}

/// Returns the bytes of the matrices, each read once.
int64_t bytes_of(const Fp4Gemm& gemm, int64_t matrices) {
  return weight_bytes(gemm.weight, matrices) +
         (gemm.output == Fp4Output::swiglu ? weight_bytes(gemm.up, matrices) : 0);
}

void check(const Fp4Gemm& gemm) {
  const DeviceLinear& w = gemm.weight;
  const bool paired = gemm.output == Fp4Output::swiglu;
  CHECK(w.format == Format::nvfp4 && w.cols % kFp4StepColumns == 0, w.rows, " x ", w.cols);
  CHECK(!paired || (w.rows % fp4_tile_rows(gemm.output) == 0 && gemm.y_stride % 2 == 0 &&
                    gemm.up.rows == w.rows && gemm.up.cols == w.cols),
        "gate of ", w.rows, " x ", w.cols, ", up of ", gemm.up.rows, " x ", gemm.up.cols,
        ", outputs at ", gemm.y_stride);
}

}  // namespace

void fp4_gemm_prepare(const Launcher& launcher) {
  if (launcher.card.fp4 == Architecture::Fp4::off) return;
  for (const auto output : {Fp4Output::bf16, Fp4Output::f32, Fp4Output::add, Fp4Output::swiglu})
    for (const int rows : {kFp4FewTokens, kFp4ManyTokens}) {
      const Fp4Plan plan = select_fp4({.rows = rows, .output = output}, 1, launcher.card);
      launcher.device->allow_shared(kernel_of(plan), plan.shared_bytes);
    }
}

void fp4_gemm(const Fp4Gemm& gemm, const Launcher& launcher, int64_t matrices) {
  if (gemm.rows == 0 || gemm.weight.rows == 0) return;
  check(gemm);
  const Fp4Plan plan = select_fp4(gemm, matrices, launcher.card);
  const int rows_each = fp4_tile_rows(gemm.output);
  const int32_t most = gemm.experts.present() ? gemm.experts.rows_max : gemm.rows;
  const Fp4Args args{.gemm = gemm,
                     .k_steps = gemm.weight.cols / kFp4StepColumns,
                     .row_tiles = (gemm.weight.rows + rows_each - 1) / rows_each,
                     .parts = (most + plan.tokens - 1) / plan.tokens};
  log_launch(launcher, plan, {.weights = bytes_of(gemm, matrices)});
  launch(kernel_of(plan), launcher.in_order(), static_cast<unsigned>(plan.blocks), kFp4Threads,
         static_cast<size_t>(plan.shared_bytes), args);
}

}  // namespace nibble::cuda
