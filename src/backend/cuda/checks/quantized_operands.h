// Random matrices in NVFP4 and FP8 whose numbers are known one by one, and products of them in
// double, for the checks of products of codes.
#pragma once

#include <vector>

#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/quantized/quantized_gemm.h"
#include "backend/cuda/weights/code_words.h"
#include "backend/cuda/weights/device_checks.h"
#include "backend/cuda/weights/fp8_bytes.h"

namespace nibble::checks {

/// exact: scales of 0.5, 1 and 2 and factors of powers of two, in FP8 codes of 0, 1 and 2, so that
/// every sum of up to 4096 products is exact in F32, and one of 128 in half as many bits. any:
/// every scale and code that is a number.
enum class Numbers : uint8_t { exact, any };

/// Rows of codes as numbers, in the file's order, beside the same as the device has them.
struct QuantizedSide {
  cuda::Format format = cuda::Format::nvfp4;
  cuda::FactorLayout layout = cuda::FactorLayout::scalar;
  int64_t rows = 0;
  int cols = 0;
  int matrix_rows = 1;        // of W; a row of x is one of its own
  int64_t factor_stride = 1;  // factors of a matrix, or of a row of x
  uint8_t* plain = nullptr;   // [rows][cols], a code in each byte
  uint8_t* codes = nullptr;   // [rows][value_bytes]
  uint8_t* scales = nullptr;  // NVFP4: [rows][cols / 16]
  float* factors = nullptr;   // [rows / matrix_rows][factor_stride]

  __host__ __device__ int64_t factor_index(int64_t row, int c) const {
    const int64_t first = row / matrix_rows * factor_stride;
    const int64_t within = row % matrix_rows;
    if (layout == cuda::FactorLayout::row) return first + within;
    if (layout == cuda::FactorLayout::scalar) return first;
    return first + within / 128 * (cols / 128) + c / 128;
  }
  __device__ double value(int64_t row, int c) const {
    const int64_t i = row * cols + c;
    if (format == cuda::Format::fp8) return e4m3_value(plain[i]);
    return e2m1_value(plain[i]) * e4m3_value(scales[i / 16]);
  }
  void free() const {
    for (void* p : {static_cast<void*>(plain), static_cast<void*>(codes),
                    static_cast<void*>(scales), static_cast<void*>(factors)})
      cudaFree(p);
  }
};

/// Fills what is random and leaves codes as the device has them to the caller.
inline QuantizedSide random_side(QuantizedSide side, Numbers numbers, uint32_t seed) {
  const int64_t count = side.rows * side.cols;
  const bool exact = numbers == Numbers::exact;
  const bool fp8 = side.format == cuda::Format::fp8;
  auto* plain = side.plain = device_array<uint8_t>(count);
  side.codes = device_array<uint8_t>(side.rows * cuda::value_bytes(side.format, side.cols));
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) {
        constexpr uint64_t kExact = 0xB838C0B880403800U;  // 0, 1, 2, -0, -1, -2, 1, -1
        const uint32_t bits = hash_bits(seed, i);
        const uint32_t any = (bits & 0x7F) == 0x7F ? bits ^ 1 : bits;  // no NaN
        plain[i] = static_cast<uint8_t>(!fp8 ? bits & 15 : exact ? kExact >> (bits % 8 * 8) : any);
      },
      count);
  if (!fp8) {
    auto* scales = side.scales = device_array<uint8_t>(count / 16);
    fill_kernel<<<1024, 256>>>(
        [=] __device__(int64_t i) {
          const uint32_t bits = hash_bits(seed + 1, i);
          scales[i] = static_cast<uint8_t>(exact ? 0x30 + bits % 3 * 8 : bits % 0x7F);
        },
        count / 16);
  }
  const int64_t factors = side.rows / side.matrix_rows * side.factor_stride;
  auto* factor = side.factors = device_array<float>(factors);
  fill_kernel<<<64, 256>>>(
      [=] __device__(int64_t i) {
        const float any = 0.01F * (1.5F + hash_normal(seed + 2, i) * 0.4F);
        factor[i] = exact ? (hash_bits(seed + 2, i) & 1) != 0 ? 0.5F : 2.0F : any;
      },
      factors);
  return side;
}

/// The format of a matrix, and that of its inputs.
struct SideFormat {
  cuda::Format format = cuda::Format::nvfp4;
  cuda::FactorLayout layout = cuda::FactorLayout::scalar;
  ActivationFormat activations = ActivationFormat::nvfp4;
};

/// The codes in the order of a file, then as weights lie on the device.
struct WeightShape {
  int matrices, n, k;
};
inline QuantizedSide random_weight(const SideFormat& kind, const WeightShape& shape,
                                   Numbers numbers, uint32_t seed) {
  const auto [matrices, n, k] = shape;
  QuantizedSide side{.format = kind.format,
                     .layout = kind.layout,
                     .rows = int64_t{matrices} * n,
                     .cols = k,
                     .matrix_rows = n};
  side.factor_stride = side.factor_index(n - 1, k - 1) + 1;
  side = random_side(side, numbers, seed);
  const uint8_t* plain = side.plain;
  uint8_t* codes = side.codes;
  const bool fp8 = kind.format == cuda::Format::fp8;
  const int64_t bytes = side.rows * cuda::value_bytes(kind.format, k);
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) {
        codes[i] = fp8 ? plain[i] : static_cast<uint8_t>(plain[2 * i] | plain[2 * i + 1] << 4);
      },
      bytes);
  cuda::lay_codes(codes, bytes, kind.format, {});
  return side;
}
inline cuda::DeviceLinear linear_of(const QuantizedSide& side, int n) {
  return {.format = side.format,
          .layout = side.layout,
          .values = side.codes,
          .scales = side.scales,
          .factors = side.factors,
          .rows = n,
          .cols = side.cols,
          .factor_stride = static_cast<int32_t>(side.factor_stride)};
}

/// Column c is in nibble fp4_nibble(c % 8) of its word, or in byte fp8_column(c % 8) of its two.
inline QuantizedSide random_rows(const SideFormat& kind, int64_t rows, int k, Numbers numbers,
                                 uint32_t seed) {
  const int each = cuda::fp8_factors_each(kind.activations, k);
  const QuantizedSide side =
      random_side({.format = kind.format,
                   .layout = each > 1 ? cuda::FactorLayout::block128 : cuda::FactorLayout::scalar,
                   .rows = rows,
                   .cols = k,
                   .factor_stride = each},
                  numbers, seed);
  const uint8_t* plain = side.plain;
  const bool fp8 = kind.format == cuda::Format::fp8;
  auto* codes = side.codes;
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) {
        uint32_t word = 0;
        for (int c = 0; c < 8; ++c) {
          const uint8_t code = plain[8 * i + c];
          if (fp8)
            codes[8 * i + cuda::fp8_column(c)] = code;
          else
            word |= uint32_t{code} << (4 * cuda::fp4_nibble(c));
        }
        if (!fp8) reinterpret_cast<uint32_t*>(codes)[i] = word;
      },
      rows * k / 8);
  return side;
}

/// The factors of x's rows take part, or not.
enum class RowFactors : uint8_t { none, each };

/// The product of row `x` of one side and row `w` of the other, by a warp.
__device__ inline double exact_product(const QuantizedSide& a, int64_t x, const QuantizedSide& b,
                                       int64_t w, RowFactors factors) {
  double sum = 0.0;
  for (int c = static_cast<int>(threadIdx.x % 32); c < a.cols; c += 32) {
    const double factor = factors == RowFactors::each ? a.factors[a.factor_index(x, c)] : 1.0;
    sum += a.value(x, c) * factor * b.value(w, c) * b.factors[b.factor_index(w, c)];
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  return sum;
}

/// Rows of a result: row i is row from[i] of x times matrix matrices[i], with factors; those of x's
/// rows if asked.
struct ResultRows {
  std::vector<int32_t> from, matrices;
  int n = 0;  // columns
  RowFactors factors = RowFactors::none;
};
struct ProductTask {
  QuantizedSide x, w;
  const int32_t* from;
  const int32_t* matrices;
  int64_t count;
  int n;
  RowFactors factors;
  double* y;  // [count][n]
};
static __global__ void product_kernel(ProductTask t) {
  const int64_t i = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (i >= t.count * t.n) return;
  const int64_t row = t.from[i / t.n];
  const int64_t matrix = t.matrices[i / t.n];
  const double sum = exact_product(t.x, row, t.w, matrix * t.n + i % t.n, t.factors);
  if (threadIdx.x % 32 == 0) t.y[i] = sum;
}
inline std::vector<double> products(const QuantizedSide& x, const QuantizedSide& w,
                                    const ResultRows& rows) {
  const auto count = static_cast<int64_t>(rows.from.size());
  int32_t* from = to_device(rows.from);
  int32_t* matrices = to_device(rows.matrices);
  auto* y = device_array<double>(count * rows.n);
  const int64_t blocks = (count * rows.n * 32 + 255) / 256;
  product_kernel<<<static_cast<unsigned>(blocks), 256>>>(
      {x, w, from, matrices, count, rows.n, rows.factors, y});
  must(cudaDeviceSynchronize(), "products in double");
  std::vector<double> out = to_host(y, count * rows.n);
  for (void* p : {static_cast<void*>(from), static_cast<void*>(matrices), static_cast<void*>(y)})
    cudaFree(p);
  return out;
}

}  // namespace nibble::checks
