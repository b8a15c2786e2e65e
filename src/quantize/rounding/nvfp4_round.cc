// Rows: conversion to F32 over the global scale, choice of the instruction set, statistics.
#include "quantize/rounding/nvfp4_round.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "quantize/rounding/round_path.inl.h"

namespace nibble {
namespace detail {
constexpr BlockScaleTables kBlockTables = make_block_scale_tables();

void load_row(const TensorView& weights, int64_t row, float factor, std::span<float> out) {
  const int64_t begin = row * static_cast<int64_t>(out.size());
  if (weights.dtype == DType::f32) {
    const float* in = weights.as<float>() + begin;
    for (size_t i = 0; i < out.size(); ++i) out[i] = in[i] * factor;
    return;
  }
  const uint16_t* in = weights.as<uint16_t>() + begin;
  if (weights.dtype == DType::bf16) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_float(in[i]) * factor;
    return;
  }
  CHECK(weights.dtype == DType::f16, "weights of dtype ", dtype_info(weights.dtype).name);
  for (size_t i = 0; i < out.size(); ++i) out[i] = f16_to_float(in[i]) * factor;
}

}  // namespace detail

namespace {

struct PlainRow {
  detail::Row row;
  RoundAlgorithm algorithm;
  RoundStatistics& statistics;

  template <int W>
  NIBBLE_INLINE void run() const {
    statistics += detail::round_row<W>(row.u, row.cols, algorithm, row.codes, row.scales);
  }
};

template <typename Bits>
Bits largest_bits(const std::byte* values, int64_t count) {
  const Bits* bits = reinterpret_cast<const Bits*>(values);
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  Bits largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, static_cast<Bits>(bits[i] & kMagnitude));
  return largest;
}

}  // namespace

std::string_view round_algorithm_name(RoundAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"search",   "amax",   "four-over-six",
                                         "diagonal", "blocks", "gptq"};
  return kNames[static_cast<size_t>(algorithm)];
}

Result<RoundAlgorithm> parse_round_algorithm(std::string_view name) {
  std::string names;
  for (const auto algorithm : kRoundAlgorithms) {
    if (round_algorithm_name(algorithm) == name) return algorithm;
    names += concat(names.empty() ? "" : ", ", round_algorithm_name(algorithm));
  }
  return make_error(ErrorCode::invalid_argument,
                    {.what = "algorithm", .expected = names, .found = name});
}

std::string_view round_path_name(RoundPath path) {
  constexpr std::string_view kNames[] = {"portable", "avx2", "avx512"};
  return kNames[static_cast<size_t>(path)];
}

bool round_path_available(RoundPath path) {
#if defined(__x86_64__)
  if (path == RoundPath::avx2) return __builtin_cpu_supports("avx2") != 0;
  if (path == RoundPath::avx512)
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
#endif
  return path == RoundPath::portable;
}

RoundPath best_round_path() {
  for (const RoundPath path : {RoundPath::avx512, RoundPath::avx2})
    if (round_path_available(path)) return path;
  return RoundPath::portable;
}

int global_exponent(float amax) {
  CHECK(amax >= 0.0F && amax <= kWeightMax, "amax ", amax);
  if (amax == 0.0F) return 0;
  int exponent = 0;
  const float fraction = std::frexp(amax, &exponent);  // in [0.5, 1)
  constexpr float kLimitFraction = 3.5F * 448.0F / 2048.0F;
  return std::max(exponent - 11 + (fraction > kLimitFraction ? 1 : 0), -126);
}

GlobalScale power_of_two_global(int exponent, GlobalScale::Direction direction) {
  const bool divides = direction == GlobalScale::Direction::divide;
  return {std::ldexp(1.0F, divides ? -exponent : exponent), direction};
}

float largest_magnitude(const std::byte* values, DType dtype, int64_t count) {
  if (dtype == DType::f32) return std::bit_cast<float>(largest_bits<uint32_t>(values, count));
  const uint16_t bits = largest_bits<uint16_t>(values, count);
  if (dtype == DType::bf16) return bf16_to_float(bits);
  CHECK(dtype == DType::f16, "weights of dtype ", dtype_info(dtype).name);
  return f16_to_float(bits);
}

TensorView rows_of(const TensorView& matrix, int64_t begin, int64_t rows) {
  const int64_t cols = matrix.shape[1];
  return {matrix.data + dtype_bytes(matrix.dtype, begin * cols), matrix.dtype, Shape{rows, cols}};
}

RoundStatistics& RoundStatistics::operator+=(const RoundStatistics& other) {
  weight_squares += other.weight_squares;
  error_squares += other.error_squares;
  amax_error_squares += other.amax_error_squares;
  zero_blocks += other.zero_blocks;
  flushed_blocks += other.flushed_blocks;
  return *this;
}

void RoundStatistics::scale_by(double factor) {
  weight_squares *= factor;
  error_squares *= factor;
  amax_error_squares *= factor;
}

RoundStatistics round_nvfp4_rows(const TensorView& weights, const RoundRequest& request,
                                 std::span<uint8_t> codes, std::span<uint8_t> scales) {
  CHECK(request.algorithm <= RoundAlgorithm::four_over_six, round_algorithm_name(request.algorithm),
        " needs data");
  return detail::round_rows(
      weights, request.exponent, codes, scales,
      [&](const detail::Row& row, RoundStatistics& statistics) {
        detail::run_on(request.path, PlainRow{row, request.algorithm, statistics});
      });
}

}  // namespace nibble
