// Rows of inputs as codes: one block per row; formulas and shapes in
// quantized_rows.h. From compute capability 8.0 up. Bound by the bytes of the
// rows; not measured.
#include "backend/cuda/ops/quantized/quantized_row.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 128;

template <ActivationFormat kInputs>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const __grid_constant__ QuantizeRows a) {
  wait_for_inputs();
  make_row<kThreads, kInputs>(a, static_cast<int>(blockIdx.x));
}

}  // namespace

void check_rows(const QuantizeRows& args) {
  const ActivationFormat inputs = args.weight.activations;
  const int64_t group = inputs == ActivationFormat::nvfp4 ? kNvfp4Group : kFp8Block;
  const bool made = inputs == ActivationFormat::nvfp4 ? args.global == GlobalOf::row
                                                      : inputs != ActivationFormat::fp8_tensor;
  CHECK(args.weight.cols % group == 0 && args.x_stride % 2 == 0, args.weight.cols,
        " columns, rows at ", args.x_stride);
  CHECK(!made || args.out.factors != nullptr, "no place for factors");
}

void quantize_rows(const QuantizeRows& args, const Launcher& launcher) {
  if (args.count == 0) return;
  check_rows(args);
  with_value<ActivationFormat::nvfp4, ActivationFormat::fp8_token, ActivationFormat::fp8_tensor,
             ActivationFormat::fp8_group>(args.weight.activations, [&]<ActivationFormat kInputs>() {
    launch(quantize_kernel<kInputs>, launcher, static_cast<unsigned>(args.count), kThreads, 0,
           args);
  });
}

}  // namespace nibble::cuda
