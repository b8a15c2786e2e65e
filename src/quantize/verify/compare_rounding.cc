// Rows are rounded in pieces; a few of them first, to see which algorithm it was, if any.
#include "quantize/verify/compare_rounding.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "quantize/rounding/fp8_round.h"
#include "quantize/rounding/nvfp4_round.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

constexpr RoundAlgorithm kDataFree[] = {RoundAlgorithm::search, RoundAlgorithm::amax,
                                        RoundAlgorithm::four_over_six};
constexpr int64_t kSampledRows = 8;
constexpr int64_t kPieceRows = 128;  // a band of FP8 tiles
constexpr int64_t kCodeBytes = kNvfp4Group / 2;
// A matrix is of an algorithm if so many of its sampled blocks are, and damaged if at most so many
// of all are not. Another algorithm agrees with the search in few blocks.
constexpr double kSampledShare = 0.5;
constexpr double kOddBlocksShare = 0.1;
// FP8 codes of other programs, which divide in BF16, differ in several of a hundred.
constexpr double kOddCodesShare = 0.001;
constexpr int64_t kOddCodes = 16;

/// Places at which two packed matrices differ.
struct Differences {
  int64_t all = 0;
  int64_t odd = 0;
  int64_t row = 0, col = 0;  // of the first
  void add(bool same, int64_t at_row, int64_t at_col) {
    ++all;
    if (same) return;
    if (odd++ == 0) {
      row = at_row;
      col = at_col;
    }
  }
};

TensorView rows_of(const LinearWeight& source, int64_t begin, int64_t rows) {
  const TensorView all = source.values.view();
  return {all.data + dtype_bytes(all.dtype, begin * source.cols), all.dtype,
          Shape{rows, source.cols}};
}

/// Rows [begin, begin + count).
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
};

/// Rounds rows of the source and compares block for block.
void compare_blocks(const LinearWeight& stored, const LinearWeight& source,
                    const RoundRequest& request, RowRange rows, Differences& found) {
  const int64_t in_row = source.cols / kNvfp4Group;
  const int64_t blocks = rows.count * in_row;
  std::vector<uint8_t> codes(static_cast<size_t>(blocks * kCodeBytes));
  std::vector<uint8_t> scales(static_cast<size_t>(blocks));
  round_nvfp4_rows(rows_of(source, rows.begin, rows.count), request, codes, scales);
  const auto* old_scales = stored.scales.view().as<uint8_t>() + rows.begin * in_row;
  const auto* old_codes = stored.values.view().as<uint8_t>() + rows.begin * in_row * kCodeBytes;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t at = i * kCodeBytes;
    const bool same =
        scales[static_cast<size_t>(i)] == old_scales[i] &&
        std::memcmp(codes.data() + at, old_codes + at, static_cast<size_t>(kCodeBytes)) == 0;
    found.add(same, rows.begin + i / in_row, i % in_row * kNvfp4Group);
  }
}

double share(const Differences& found) {
  return found.all > 0 ? static_cast<double>(found.odd) / static_cast<double>(found.all) : 0.0;
}

/// The algorithm that most of the sampled rows are of.
RoundAlgorithm likeliest(const LinearWeight& stored, const LinearWeight& source, int exponent,
                         double& odd_share) {
  RoundAlgorithm best = RoundAlgorithm::search;
  odd_share = 1.0;
  const int64_t rows = std::min(kSampledRows, source.rows);
  for (const RoundAlgorithm algorithm : kDataFree) {
    Differences found;
    for (int64_t i = 0; i < rows; ++i)
      compare_blocks(stored, source, {exponent, algorithm, best_round_path()},
                     {.begin = i * source.rows / rows, .count = 1}, found);
    if (share(found) >= odd_share) continue;
    odd_share = share(found);
    best = algorithm;
  }
  return best;
}

std::string odd_nvfp4(const LinearWeight& stored, const LinearWeight& source, float group_amax) {
  const int exponent = global_exponent(group_amax);
  double odd_share = 1.0;
  const RoundAlgorithm algorithm = likeliest(stored, source, exponent, odd_share);
  if (odd_share > kSampledShare) return "";
  Differences found;
  for (int64_t row = 0; row < source.rows; row += kPieceRows)
    compare_blocks(stored, source, {exponent, algorithm, best_round_path()},
                   {.begin = row, .count = std::min(kPieceRows, source.rows - row)}, found);
  if (share(found) > kOddBlocksShare) return "";
  const float global = power_of_two_global(exponent, stored.global_scale.direction).value;
  if (stored.global_scale.value != global)
    return concat("its global scale: expected ", global, ", as the blocks have it, found ",
                  stored.global_scale.value);
  if (found.odd == 0) return "";
  return concat(found.odd, " of ", found.all, " blocks, which are not what ",
                round_algorithm_name(algorithm), " makes of the source; the first at row ",
                found.row, ", column ", found.col);
}

/// Codes and scales of FP8 in one of its forms, rounded from rows of the source.
struct Fp8Rows {
  std::vector<uint8_t> codes;
  std::vector<float> scales;  // as many as the rows have
};

Fp8Rows round_fp8(const LinearWeight& source, WeightFormat format, float scale, int64_t begin,
                  int64_t rows) {
  Fp8Rows out{.codes = std::vector<uint8_t>(static_cast<size_t>(rows * source.cols)), .scales = {}};
  const TensorView view = rows_of(source, begin, rows);
  if (format == WeightFormat::fp8_block) {
    out.scales.resize(static_cast<size_t>((source.cols + kPieceRows - 1) / kPieceRows));
    round_fp8_band(view, out.codes, out.scales);
  } else if (format == WeightFormat::fp8_channel) {
    out.scales.resize(static_cast<size_t>(rows));
    round_fp8_channels(view, out.codes, out.scales);
  } else {
    round_fp8_rows(view, scale, out.codes);
  }
  return out;
}

std::string odd_fp8(const LinearWeight& stored, const LinearWeight& source, float group_amax) {
  const WeightFormat format = stored.scheme.weights;
  const float scale = fp8_scale(group_amax);
  Differences codes, scales;
  const auto* old_codes = stored.values.view().as<uint8_t>();
  const auto* old_scales = stored.scales.view().as<float>();
  for (int64_t begin = 0; begin < source.rows; begin += kPieceRows) {
    const int64_t rows = std::min(kPieceRows, source.rows - begin);
    const Fp8Rows now = round_fp8(source, format, scale, begin, rows);
    for (const uint8_t code : now.codes) {
      const int64_t at = codes.all;
      codes.add(code == old_codes[at], at / source.cols, at % source.cols);
    }
    for (const float one : now.scales) {
      const int64_t at = scales.all;
      scales.add(one == old_scales[at], at, 0);
    }
  }
  const auto limit = static_cast<double>(codes.all) * kOddCodesShare;
  if (static_cast<double>(codes.odd) > limit + static_cast<double>(kOddCodes)) return "";
  if (share(scales) > kOddBlocksShare && scales.odd > 1) return "";
  if (format == WeightFormat::fp8_tensor && old_scales[0] != scale)
    return concat("its scale: expected ", scale, ", as the codes have it, found ", old_scales[0]);
  if (scales.odd > 0)
    return concat(scales.odd, " of ", scales.all, " scales, the first at ", scales.row);
  if (codes.odd == 0) return "";
  return concat(codes.odd, " of ", codes.all, " codes, the first at row ", codes.row, ", column ",
                codes.col);
}

}  // namespace

std::string odd_rounding(const LinearWeight& stored, const LinearWeight& source, float group_amax) {
  const DType dtype = source.values.dtype();
  const bool known = dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
  if (!known || !(group_amax <= kWeightMax)) return "";
  if (stored.scheme.weights == WeightFormat::nvfp4) return odd_nvfp4(stored, source, group_amax);
  return odd_fp8(stored, source, group_amax);
}

}  // namespace nibble
