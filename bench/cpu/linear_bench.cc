// Products of activations with packed weights at the shapes of the 35B model: time, and the share
// of the bound, which is the larger of products / peak and bytes / bandwidth. One core.
//   linear_bench [isa] [f32|int8] [interleaved|stored]
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

/// Products per second of F32 and, for activations with few bits, by the format of the weights.
struct Peak {
  double f32, int8, bf16;
  double bytes_per_s;
  double of(const Row& row, Activations activations) const {
    if (activations == Activations::f32 || row.format == WeightFormat::plain) return f32;
    return row.format == WeightFormat::nvfp4 ? int8 : bf16;
  }
};

/// Block scales of 0.5 to 1.875, as `synth` writes them: smaller ones than 2^-6 would be subnormal
/// in F32 on their way, which takes time and is rare in checkpoints.
void keep_scales_normal(LinearWeight& weight) {
  for (std::byte& scale : weight.scales.span()) scale = (scale & std::byte{0x0F}) | std::byte{0x30};
}

/// Panels of 16 rows in memory of their own, or rows as files have them.
enum class Layout : uint8_t { interleaved, stored };

struct Weights {
  std::vector<LinearWeight> read;
  std::vector<PackedLinear> packed;
  Weights(const Row& row, Layout layout) {
    RandomWeights random(7);
    for (int i = 0; i < row.copies; ++i)
      read.push_back(random.linear(row.rows, row.cols, row.format, row.plain));
    if (row.format == WeightFormat::nvfp4)
      for (LinearWeight& weight : read) keep_scales_normal(weight);
    for (const LinearWeight& weight : read)
      packed.push_back(layout == Layout::stored ? PackedLinear::over(weight).value()
                                                : PackedLinear::pack(weight).value());
  }
};

/// y = x W^T over `copies` different weights, as one timed call.
void measure(const KernelTable& kernels, const Row& row, int64_t x_rows, const Peak& peak,
             Activations activations, Layout layout) {
  RandomWeights random(8);
  const Weights all(row, layout);
  const std::vector<PackedLinear>& weights = all.packed;
  const std::vector<float> x = random.values(x_rows * row.cols);
  std::vector<float> y(static_cast<size_t>(x_rows * row.rows));
  ThreadPool pool(1);
  LinearRunner runner(kernels, pool, activations);
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
  const double fma_s = fma / peak.of(row, activations);
  const double bytes_s = bytes / peak.bytes_per_s;
  const double bound = fma_s > bytes_s ? fma_s : bytes_s;
  std::printf(
      "%-7s %-4s %-11s %-22s [%5ld, %5ld] x %4ld rows: %9.3f ms  %6.1f G products/s  %5.1f GB/s  "
      "%3.0f %% of the bound (%s)\n",
      kernels.isa, std::string(activations_name(activations)).c_str(),
      layout == Layout::stored ? "stored" : "interleaved", row.what, row.rows, row.cols, x_rows,
      s * 1e3 / row.copies, fma / s * 1e-9, bytes / s * 1e-9, 100.0 * bound / s,
      fma_s > bytes_s ? "products" : "memory");
}

constexpr DType kBf16 = DType::bf16;
constexpr Row kRows[] = {
    {"nvfp4 expert gate", WeightFormat::nvfp4, kBf16, 512, 2048, 128},
    {"nvfp4 expert down", WeightFormat::nvfp4, kBf16, 2048, 512, 128},
    {"nvfp4 qkv, 1/8", WeightFormat::nvfp4, kBf16, 1024, 2048, 64},
    {"nvfp4 head, 1/128", WeightFormat::nvfp4, kBf16, 1936, 2048, 32},
    {"bf16 qkv, 1/8", WeightFormat::plain, kBf16, 1024, 2048, 24},
    {"fp8 channel qkv, 1/8", WeightFormat::fp8_channel, kBf16, 1024, 2048, 32},
    {"fp8 block qkv, 1/8", WeightFormat::fp8_block, kBf16, 1024, 2048, 32},
    {"f32 qkv, 1/8", WeightFormat::plain, DType::f32, 1024, 2048, 16},
    {"bf16 pebble qkv", WeightFormat::plain, kBf16, 1024, 256, 1},
    {"bf16 pebble expert", WeightFormat::plain, kBf16, 64, 256, 16},
    {"nvfp4 pebble expert", WeightFormat::nvfp4, kBf16, 64, 256, 16},
};

/// All rows on one instruction set.
void measure_all(const KernelTable& kernels, const Peak& peak, const std::string& mode,
                 const std::string& wanted) {
  for (const Activations activations : {Activations::f32, Activations::int8}) {
    if (!mode.empty() && mode != activations_name(activations)) continue;
    for (const Row& row : kRows)
      for (const int64_t x_rows : {1, 4, 16, 96}) {
        Row some = row;
        if (x_rows == 96) some.copies = 1;  // arithmetic bounds it
        const bool stored = row.rows % 16 == 0 && row.cols % 256 == 0;
        if (wanted != "stored")
          measure(kernels, some, x_rows, peak, activations, Layout::interleaved);
        if (wanted != "interleaved" && stored)
          measure(kernels, some, x_rows, peak, activations, Layout::stored);
      }
  }
}

int run(const std::string& wanted, const std::string& mode, const std::string& layout) {
  const double bandwidth = bench::read_bytes_per_s(size_t{256} << 20);
  std::printf("read bandwidth, one core: %.1f GB/s\n", bandwidth * 1e-9);
  for (const KernelTable* kernels : usable_kernels()) {
    if (!wanted.empty() && wanted != kernels->isa) continue;
    const Peak peak = {.f32 = bench::fma_per_s(kernels->isa),
                       .int8 = bench::int8_per_s(kernels->isa),
                       .bf16 = bench::bf16_per_s(kernels->isa),
                       .bytes_per_s = bandwidth};
    if (peak.f32 == 0.0) continue;
    std::printf("%s: peak %.1f G F32, %.1f G BF16, %.1f G int8 products/s, one core\n",
                kernels->isa, peak.f32 * 1e-9, peak.bf16 * 1e-9, peak.int8 * 1e-9);
    measure_all(*kernels, peak, mode, layout);
  }
  return 0;
}

}  // namespace
}  // namespace nibble::cpu

int main(int argc, char** argv) {
  return nibble::cpu::run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "",
                          argc > 3 ? argv[3] : "");
}
