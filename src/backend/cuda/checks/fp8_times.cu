// Products in FP8 of both sides beside those of the same weights widened to BF16, at the shapes of
// the 35B's projections, and the rounding of their inputs.
#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/checks/linear_weights.h"
#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/ops/quantized/quantized_gemm.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

struct Shape {
  int n, k;
};
constexpr int kTokensMost = 8192;

/// The inputs and outputs of one product.
struct Product {
  int tokens, n, k;
  DeviceLinear w;
  uint16_t* x;
  uint16_t* y;
  uint8_t* codes;

  Product(const Shape& shape, int rows)
      : tokens(rows),
        n(shape.n),
        k(shape.k),
        w(make_weight(Format::fp8, FactorLayout::scalar, n, k, 50)),
        x(device_array<uint16_t>(int64_t{rows} * k)),
        y(device_array<uint16_t>(int64_t{rows} * n)),
        codes(device_array<uint8_t>(rows * fp8_row_bytes(k))) {
    w.activations = ActivationFormat::fp8_token;
    fill_normal(x, int64_t{rows} * k, 11, 1.0F);
  }
  ~Product() {
    for (void* p : {static_cast<void*>(x), static_cast<void*>(y), static_cast<void*>(codes)})
      cudaFree(p);
    free_weight(w);
  }
  QuantizedInput rows() const { return cut_fp8_rows(codes, tokens, k, w.activations); }
  double widened_us(const Launcher& launcher) const {
    return time_us([&] {
      prefill_gemm(
          {.packed_x = x, .x_stride = k, .rows = tokens, .weight = w, .y = y, .y_stride = n},
          launcher);
    });
  }
  double rounding_us(const Launcher& launcher) const {
    return time_us([&] {
      quantize_rows({.weight = w,
                     .count = tokens,
                     .x = x,
                     .x_stride = k,
                     .order = ColumnOrder::packed,
                     .out = rows()},
                    launcher);
    });
  }
  double product_us(const Launcher& launcher) const {
    return time_us([&] {
      quantized_gemm({.x = rows(), .rows = tokens, .weight = w, .y = y, .y_stride = n}, launcher);
    });
  }
};

void time_shape(Tally& tally, const Shape& shape, int tokens) {
  const Launcher native = launcher_of(Kernels::native);
  const Launcher portable = launcher_of(Kernels::portable);
  const Product product(shape, tokens);
  const double mma = product.widened_us(portable);
  const double rounding = product.rounding_us(portable);
  const double fp8 = product.product_us(portable);
  tally.print(
      "time %d x %d, %d tokens: BF16 native %.1f us, mma.sync %.1f us; FP8 %.1f us and %.1f us of "
      "rounding, %.1f TFLOP/s, %.2f times mma.sync",
      shape.n, shape.k, tokens, product.widened_us(native), mma, fp8, rounding,
      2e-6 * tokens * shape.n * shape.k / fp8, mma / (fp8 + rounding));
}

}  // namespace

void time_fp8(Tally& tally) {
  const Launcher launcher = fp4_launcher();
  if (!launcher.card.converts_fp8()) return tally.print("no instruction for products in FP8");
  quantized_gemm_prepare(launcher);
  for (const Kernels kernels : {Kernels::native, Kernels::portable})
    prefill_gemm_prepare(launcher_of(kernels));
  for (const Shape& shape : {Shape{8192, 2048}, Shape{2048, 4096}})
    for (int tokens = 128; tokens <= kTokensMost; tokens *= 2) time_shape(tally, shape, tokens);
}

}  // namespace nibble::checks
