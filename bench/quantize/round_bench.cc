// Weights per second of one core, by instruction set, beside the bound: the search needs, for each
// weight and each of 16 scales, 11 arithmetic operations (3 multiply, 4 add, 4 on integers), and a
// core does twice as many of these as fused multiply-adds (four vector pipes, two of which
// multiply).
#include <cstdio>
#include <random>
#include <vector>

#include "bench/cpu/machine_bounds.h"
#include "quantize/nvfp4_round.h"

namespace nibble {
namespace {

constexpr int64_t kRows = 64, kCols = 2048;  // one call fits between two switches of a busy machine
constexpr double kOperationsPerWeight = 11.0 * 16.0;
constexpr double kSecondsEach = 1.0;

std::vector<uint16_t> gaussian_weights() {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<uint16_t> weights(kRows * kCols);
  for (uint16_t& w : weights) w = float_to_bf16(normal(random));
  return weights;
}

void measure(RoundPath path, const TensorView& weights) {
  std::vector<uint8_t> codes(kRows * kCols / 2), scales(kRows * kCols / kNvfp4Group);
  RoundStatistics statistics;
  const double seconds = bench::fastest_s(kSecondsEach, [&] {
    const float amax = largest_magnitude(weights.data, weights.dtype, kRows * kCols);
    statistics =
        round_nvfp4_rows(weights, {.exponent = global_exponent(amax), .path = path}, codes, scales);
  });
  CHECK(statistics.error_squares < 0.007 * statistics.weight_squares, "search is broken");
  const double rate = static_cast<double>(kRows * kCols) / seconds;
  const double bound = 2.0 * bench::fma_per_s(round_path_name(path)) / kOperationsPerWeight;
  std::printf("%-9s %7.1f M weights/s", round_path_name(path).data(), rate / 1e6);
  if (bound > 0) std::printf("  bound %7.1f  share %4.1f %%", bound / 1e6, 100.0 * rate / bound);
  std::printf("\n");
}

}  // namespace
}  // namespace nibble

int main() {
  const auto weights = nibble::gaussian_weights();
  const nibble::TensorView view{reinterpret_cast<const std::byte*>(weights.data()),
                                nibble::DType::bf16, nibble::Shape{nibble::kRows, nibble::kCols}};
  for (const auto path :
       {nibble::RoundPath::avx512, nibble::RoundPath::avx2, nibble::RoundPath::portable})
    if (nibble::round_path_available(path)) nibble::measure(path, view);
}
