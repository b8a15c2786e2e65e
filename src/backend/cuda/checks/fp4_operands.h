// Random matrices in NVFP4 whose numbers are known one by one, and products of them in double, for
// the checks of products of 4-bit codes.
#pragma once

#include <vector>

#include "backend/cuda/checks/check_parts.h"
#include "backend/cuda/ops/fp4/fp4_gemm.h"
#include "backend/cuda/weights/code_words.h"
#include "backend/cuda/weights/device_checks.h"

namespace nibble::checks {

/// exact: scales of 0.5, 1 and 2 and factors of powers of two, so that every sum of up to 4096
/// products is exact in F32. any: every scale that is a number.
enum class Numbers : uint8_t { exact, any };

/// Rows of codes as numbers, in the file's order, beside the same as the device has them.
struct Fp4Side {
  int64_t rows = 0;
  int cols = 0;
  uint8_t* plain = nullptr;   // [rows][cols], a code in each byte
  uint8_t* codes = nullptr;   // [rows][cols / 2]
  uint8_t* scales = nullptr;  // [rows][cols / 16]
  float* factors = nullptr;   // [matrices or rows]

  void free() const {
    for (void* p : {static_cast<void*>(plain), static_cast<void*>(codes),
                    static_cast<void*>(scales), static_cast<void*>(factors)})
      cudaFree(p);
  }
};

inline Fp4Side random_side(int64_t rows, int cols, int64_t factors, Numbers numbers,
                           uint32_t seed) {
  Fp4Side side{.rows = rows, .cols = cols};
  const int64_t count = rows * cols;
  const bool exact = numbers == Numbers::exact;
  auto* plain = side.plain = device_array<uint8_t>(count);
  auto* scales = side.scales = device_array<uint8_t>(count / 16);
  auto* factor = side.factors = device_array<float>(factors);
  side.codes = device_array<uint8_t>(count / 2);
  fill_bytes(plain, count, seed, 15);
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) {
        const uint32_t bits = hash_bits(seed + 1, i);
        scales[i] = static_cast<uint8_t>(exact ? 0x30 + bits % 3 * 8 : bits % 0x7F);
      },
      count / 16);
  fill_kernel<<<64, 256>>>(
      [=] __device__(int64_t i) {
        const float any = 0.01F * (1.5F + hash_normal(seed + 2, i) * 0.4F);
        factor[i] = exact ? (hash_bits(seed + 2, i) & 1) != 0 ? 0.5F : 2.0F : any;
      },
      factors);
  return side;
}

/// The codes in the order of a file, then as weights lie on the device.
inline Fp4Side random_weight(int matrices, int n, int k, Numbers numbers, uint32_t seed) {
  const Fp4Side side = random_side(int64_t{matrices} * n, k, matrices, numbers, seed);
  const uint8_t* plain = side.plain;
  uint8_t* codes = side.codes;
  const int64_t bytes = side.rows * k / 2;
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) {
        codes[i] = static_cast<uint8_t>(plain[2 * i] | plain[2 * i + 1] << 4);
      },
      bytes);
  cuda::lay_codes(codes, bytes, cuda::Format::nvfp4, {});
  return side;
}
inline cuda::DeviceLinear linear_of(const Fp4Side& side, int n) {
  return {.format = cuda::Format::nvfp4,
          .layout = cuda::FactorLayout::scalar,
          .values = side.codes,
          .scales = side.scales,
          .factors = side.factors,
          .rows = n,
          .cols = side.cols,
          .factor_stride = 1};
}

/// Column c is in nibble fp4_nibble(c % 8) of its word.
inline Fp4Side random_rows(int64_t rows, int k, Numbers numbers, uint32_t seed) {
  const Fp4Side side = random_side(rows, k, rows, numbers, seed);
  const uint8_t* plain = side.plain;
  auto* words = reinterpret_cast<uint32_t*>(side.codes);
  fill_kernel<<<1024, 256>>>(
      [=] __device__(int64_t i) {
        uint32_t word = 0;
        for (int c = 0; c < 8; ++c) word |= uint32_t{plain[8 * i + c]} << (4 * cuda::fp4_nibble(c));
        words[i] = word;
      },
      rows * k / 8);
  return side;
}

/// The product of row `x` of one side and row `w` of the other without factors, by a warp.
__device__ inline double exact_product(const Fp4Side& a, int64_t x, const Fp4Side& b, int64_t w) {
  double sum = 0.0;
  for (int c = static_cast<int>(threadIdx.x % 32); c < a.cols; c += 32) {
    const int64_t i = x * a.cols + c;
    const int64_t j = w * b.cols + c;
    sum += e2m1_value(a.plain[i]) * e4m3_value(a.scales[i / 16]) * e2m1_value(b.plain[j]) *
           e4m3_value(b.scales[j / 16]);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  return sum;
}

/// Rows of a result: row i is row from[i] of x times matrix matrices[i], with factors; those of x's
/// rows if asked.
enum class RowFactors : uint8_t { none, each };
struct ResultRows {
  std::vector<int32_t> from, matrices;
  int n = 0;  // columns
  RowFactors factors = RowFactors::none;
};
struct ProductTask {
  Fp4Side x, w;
  const int32_t* from;
  const int32_t* matrices;
  int64_t count;
  int n;
  bool scaled;
  double* y;  // [count][n]
};
static __global__ void product_kernel(ProductTask t) {
  const int64_t i = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (i >= t.count * t.n) return;
  const int64_t row = t.from[i / t.n];
  const int64_t matrix = t.matrices[i / t.n];
  const double sum = exact_product(t.x, row, t.w, matrix * t.n + i % t.n);
  const double factor = t.scaled ? t.x.factors[row] : 1.0;
  if (threadIdx.x % 32 == 0) t.y[i] = sum * t.w.factors[matrix] * factor;
}
inline std::vector<double> products(const Fp4Side& x, const Fp4Side& w, const ResultRows& rows) {
  const auto count = static_cast<int64_t>(rows.from.size());
  int32_t* from = to_device(rows.from);
  int32_t* matrices = to_device(rows.matrices);
  auto* y = device_array<double>(count * rows.n);
  const int64_t blocks = (count * rows.n * 32 + 255) / 256;
  product_kernel<<<static_cast<unsigned>(blocks), 256>>>(
      {x, w, from, matrices, count, rows.n, rows.factors == RowFactors::each, y});
  must(cudaDeviceSynchronize(), "products in double");
  std::vector<double> out = to_host(y, count * rows.n);
  for (void* p : {static_cast<void*>(from), static_cast<void*>(matrices), static_cast<void*>(y)})
    cudaFree(p);
  return out;
}

}  // namespace nibble::checks
