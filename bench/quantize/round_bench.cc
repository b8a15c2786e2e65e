// Weights per second of one core, by instruction set, beside the bound: the search needs, for each
// weight and each of 16 scales, 11 arithmetic operations (3 multiply, 4 add, 4 on integers), and a
// core does twice as many of these as fused multiply-adds (four vector pipes, two of which
// multiply).
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "bench/cpu/machine_bounds.h"
#include "quantize/rounding/rounding.h"

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

/// Inputs of ordinary size with a common direction.
InputStatistics statistics_for(RoundAlgorithm algorithm) {
  constexpr int64_t kTokens = 512;
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(static_cast<size_t>(kTokens * kCols));
  float common = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % kCols == 0) common = normal(random);
    x[i] = normal(random) + 0.5F * common;
  }
  InputStatistics statistics(kCols, moment_needed(algorithm));
  ThreadPool threads(0);
  statistics.add(x.data(), kTokens, kCols, threads);
  return statistics;
}

void measure(RoundAlgorithm algorithm, const TensorView& weights) {
  const InputStatistics statistics = statistics_for(algorithm);
  const auto begin = std::chrono::steady_clock::now();
  const Rounding rounding = prepare_rounding({.algorithm = algorithm,
                                              .cols = kCols,
                                              .statistics = &statistics,
                                              .path = best_round_path()});
  const std::chrono::duration<double> prepared = std::chrono::steady_clock::now() - begin;
  CHECK(rounding.fallback.empty(), rounding.fallback);
  const float amax = largest_magnitude(weights.data, weights.dtype, kRows * kCols);
  const double seconds = bench::fastest_s(
      kSecondsEach, [&] { round_matrix(rounding, weights, global_exponent(amax)); });
  std::printf("%-13s %7.1f M weights/s, prepared in %.2f s\n",
              round_algorithm_name(algorithm).data(),
              static_cast<double>(kRows * kCols) / seconds / 1e6, prepared.count());
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
  for (const auto algorithm : nibble::kRoundAlgorithms) nibble::measure(algorithm, view);
}
