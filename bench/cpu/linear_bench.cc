// Products of F32 activations with packed weights at the shapes of the 35B model: time, and the
// share of the bound, which is the larger of FMAs / peak and bytes / bandwidth. One core.
//   linear_bench [isa]
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/random_weights.h"
#include "bench/cpu/machine_bounds.h"

namespace nibble::cpu {
namespace {

struct Row {
  const char* what;
  WeightFormat format;
  DType plain;
  int64_t rows, cols;
  int copies;  // rotated, so that weights come from memory when the model would not fit a cache
};

struct Peak {
  double fma_per_s;
  double bytes_per_s;
};

/// y = x W^T over `copies` different weights, as one timed call.
void measure(const KernelTable& kernels, const Row& row, int64_t x_rows, const Peak& peak) {
  RandomWeights random(7);
  std::vector<PackedLinear> weights;
  for (int i = 0; i < row.copies; ++i)
    weights.push_back(
        PackedLinear::pack(random.linear(row.rows, row.cols, row.format, row.plain), kernels)
            .value());
  const std::vector<float> x = random.values(x_rows * row.cols);
  std::vector<float> y(static_cast<size_t>(x_rows * row.rows));
  ThreadPool pool(1);
  LinearRunner runner(kernels, pool, Activations::f32);
  // Each weight has its own fastest time: they follow each other, so none is in a cache that the
  // whole set does not fit, and a disturbance spoils one of them only.
  std::vector<double> fastest(weights.size(), 1e30);
  for (int round = 0; round < 60; ++round)
    for (size_t i = 0; i < weights.size(); ++i) {
      const LinearCall call = {.weight = &weights[i],
                               .x = x.data(),
                               .x_stride = row.cols,
                               .rows = x_rows,
                               .y = y.data(),
                               .y_stride = row.rows};
      fastest[i] = std::min(fastest[i], bench::fastest_s(0.0, [&] { runner.run({&call, 1}); }));
    }
  const double s = std::accumulate(fastest.begin(), fastest.end(), 0.0);
  const double fma = 1.0 * static_cast<double>(x_rows * row.rows * row.cols * row.copies);
  double bytes = 0.0;
  for (const PackedLinear& weight : weights) bytes += static_cast<double>(weight.bytes());
  const double fma_s = fma / peak.fma_per_s;
  const double bytes_s = bytes / peak.bytes_per_s;
  const double bound = fma_s > bytes_s ? fma_s : bytes_s;
  std::printf(
      "%-7s %-22s [%5ld, %5ld] x %4ld rows: %9.3f ms  %6.1f GFMA/s  %5.1f GB/s  "
      "%3.0f %% of the bound (%s)\n",
      kernels.isa, row.what, row.rows, row.cols, x_rows, s * 1e3 / row.copies, fma / s * 1e-9,
      bytes / s * 1e-9, 100.0 * bound / s, fma_s > bytes_s ? "FMA" : "memory");
}

int run(const std::string& wanted) {
  constexpr DType kBf16 = DType::bf16;
  const Row rows[] = {
      {"nvfp4 expert gate", WeightFormat::nvfp4, kBf16, 512, 2048, 128},
      {"nvfp4 expert down", WeightFormat::nvfp4, kBf16, 2048, 512, 128},
      {"nvfp4 qkv, 1/8", WeightFormat::nvfp4, kBf16, 1024, 2048, 64},
      {"nvfp4 head, 1/128", WeightFormat::nvfp4, kBf16, 1940, 2048, 32},
      {"bf16 qkv, 1/8", WeightFormat::plain, kBf16, 1024, 2048, 24},
      {"fp8 channel qkv, 1/8", WeightFormat::fp8_channel, kBf16, 1024, 2048, 32},
      {"fp8 block qkv, 1/8", WeightFormat::fp8_block, kBf16, 1024, 2048, 32},
      {"f32 qkv, 1/8", WeightFormat::plain, DType::f32, 1024, 2048, 16},
      {"bf16 pebble qkv", WeightFormat::plain, kBf16, 1024, 256, 1},
      {"bf16 pebble expert", WeightFormat::plain, kBf16, 64, 256, 16},
      {"nvfp4 pebble expert", WeightFormat::nvfp4, kBf16, 64, 256, 16},
  };
  const double bandwidth = bench::read_bytes_per_s(size_t{256} << 20);
  std::printf("read bandwidth, one core: %.1f GB/s\n", bandwidth * 1e-9);
  for (const KernelTable* kernels : usable_kernels()) {
    if (!wanted.empty() && wanted != kernels->isa) continue;
    const double fma = bench::fma_per_s(kernels->isa);
    if (fma == 0.0) continue;
    std::printf("%s: peak %.1f GFMA/s, one core\n", kernels->isa, fma * 1e-9);
    for (const Row& row : rows)
      for (const int64_t x_rows : {1, 4, 96}) {
        Row some = row;
        if (x_rows == 96) some.copies = 1;  // arithmetic bounds it
        measure(*kernels, some, x_rows, {.fma_per_s = fma, .bytes_per_s = bandwidth});
      }
  }
  return 0;
}

}  // namespace
}  // namespace nibble::cpu

int main(int argc, char** argv) { return nibble::cpu::run(argc > 1 ? argv[1] : ""); }
