// Products whose results become the codes of the next product against the same results as BF16 and
// rounded by a kernel of their own, byte for byte.
#include <algorithm>
#include <cmath>
#include <string>

#include "backend/cuda/checks/fp4_check.h"
#include "backend/cuda/checks/quantized_product.h"
#include "tensor/activation_codec.h"

namespace nibble::checks {
namespace {

using namespace nibble::cuda;

/// A factor and G for each matrix of the next product: scales from all over their range, and some
/// beyond it.
std::vector<float> scales_for(const QuantizedProduct& p, const QuantizedOutcome& results) {
  float amax = 0.0F;
  for (const int32_t row : p.y_rows)
    for (int n = 0; n < p.n; ++n)
      amax = std::max(amax, std::fabs(results.values[row * p.y_stride + n]));
  const int32_t matrices = *std::ranges::max_element(p.matrices) + 1;
  std::vector<float> factors;
  for (int32_t i = 0; i < matrices; ++i)
    factors.insert(factors.end(), {1.0F, 2688.0F / amax * static_cast<float>(1 + i % 3)});
  return factors;
}

/// The bytes of rows of codes and their scales, filled with ones before.
struct Rows {
  int64_t bytes;
  QuantizedInput out;  // of padded rows
  Rows(int64_t rows, int n)
      : bytes(rows * (n / 2 + n / 16)), out(cut_fp4_rows(device_array<uint8_t>(bytes), rows, n)) {
    must(cudaMemset(out.codes, 0xFF, bytes), "rows of codes");
  }
  ~Rows() { cudaFree(out.codes); }
  std::vector<uint8_t> all() const { return to_host(out.codes, bytes); }
};

struct Lists {
  int32_t *rows, *matrices;  // of each row of the result
};

/// Counts the bytes that differ between the two ways.
int64_t different_bytes(const QuantizedProduct& p, const DeviceLinear& next, const Lists& lists,
                        const std::function<void(const QuantizedGemm&)>& launch_it,
                        const Launcher& launcher) {
  const Rows apart(p.y_total, next.cols);
  const Rows together(p.y_total, next.cols);
  QuantizedProduct plain = p;
  plain.order = ColumnOrder::plain;
  plain.y_stride = next.cols;
  run(plain, [&](const QuantizedGemm& gemm) {
    must(cudaMemset(gemm.y, 0, plain.y_total * plain.y_stride * 2), "padding");
    launch_it(gemm);
    quantize_rows({.weight = next,
                   .count = static_cast<int32_t>(p.y_rows.size()),
                   .x = static_cast<const uint16_t*>(gemm.y),
                   .x_stride = gemm.y_stride,
                   .from = lists.rows,
                   .to = lists.rows,
                   .matrix = lists.matrices,
                   .out = apart.out},
                  launcher);
  });
  run(p, [&](const QuantizedGemm& gemm) {
    QuantizedGemm codes = gemm;
    codes.output = QuantizedOutput::swiglu_codes;
    codes.codes = together.out;
    codes.next = next;
    launch_it(codes);
  });
  const auto want = apart.all();
  const auto got = together.all();
  int64_t different = 0;
  for (size_t i = 0; i < want.size(); ++i) different += want[i] != got[i];
  return different;
}

}  // namespace

void check_swiglu_codes(Tally& tally, const QuantizedProduct& p, const QuantizedOutcome& results,
                        const std::function<void(const QuantizedGemm&)>& launch_it,
                        const Launcher& launcher) {
  float* factors = to_device(scales_for(p, results));
  const Lists lists{to_device(p.y_rows), to_device(p.matrices)};
  for (const InputScales scales : {InputScales::amax, InputScales::four_over_six}) {
    const int cols = static_cast<int>(padded_columns(p.n));
    const DeviceLinear next{.format = Format::nvfp4,
                            .activations = ActivationFormat::nvfp4,
                            .input_scales = scales,
                            .factors = factors,
                            .cols = cols,
                            .factor_stride = 2};
    const int64_t different = different_bytes(p, next, lists, launch_it, launcher);
    const std::string name = p.name + " swiglu as codes, " + std::string(input_scales_name(scales));
    tally.check(different == 0, name.c_str(), static_cast<double>(different));
  }
  for (void* each : {static_cast<void*>(factors), static_cast<void*>(lists.rows),
                     static_cast<void*>(lists.matrices)})
    cudaFree(each);
}

}  // namespace nibble::checks
