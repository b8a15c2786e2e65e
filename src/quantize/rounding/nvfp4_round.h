// Rounding a weight matrix to NVFP4: pure functions of (weights, global scale, algorithm), with the
// same bytes on every instruction set and any number of threads. Format: docs/formats.md.
// Knows no files and no names.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tensor/float_formats.h"
#include "tensor/quant_scheme.h"
#include "tensor/tensor.h"

namespace nibble {

/// The way in which the E4M3 scale of a block of 16 is chosen.
/// search: of all 126 positive codes the one with the least squared error of the block, summed in
/// F32 in column order over the weights' 20 leading significant bits (all that BF16 and F16 have);
/// the lowest code if several tie.
/// amax: the code nearest to amax/6, what most tools write; code 1 if that is zero.
/// four_over_six: of the codes nearest to amax/6 and to amax/4 the one with the smaller error, as
/// above; the first if they tie (arXiv 2512.02010).
/// With data (rounding.h): diagonal and blocks, the search with errors weighted by the input's
/// second moment; gptq, the same with error feedback along the row and a descent after it.
enum class RoundAlgorithm : uint8_t { search, amax, four_over_six, diagonal, blocks, gptq };
inline constexpr RoundAlgorithm kRoundAlgorithms[] = {
    RoundAlgorithm::search,   RoundAlgorithm::amax,   RoundAlgorithm::four_over_six,
    RoundAlgorithm::diagonal, RoundAlgorithm::blocks, RoundAlgorithm::gptq};
/// "search", "amax", "four-over-six", "diagonal", "blocks", "gptq".
std::string_view round_algorithm_name(RoundAlgorithm algorithm);
/// Errors: invalid_argument.
Result<RoundAlgorithm> parse_round_algorithm(std::string_view name);

/// Magnitudes above this are refused as broken: a rounded weight may exceed the largest weight by
/// 1.29 and must stay finite.
inline constexpr float kWeightMax = 0x1p127F;
/// Block scale of a block of zeros (any finite one will do: its codes are zero).
inline constexpr uint8_t kZeroBlockScale = 0x38;  // 1.0

/// The global scale of a fused group is a power of two, 2^exponent in the multiply direction. So
/// its reciprocal is exact and both dialects say the same weights to the last bit; and
/// code * block scale * 2^exponent has 6 significant bits: exact in BF16 too. The exponent is the
/// least that keeps amax / 2^exponent <= 3.5 * 448, so that the search finds room for a block scale
/// up to amax/3.5 everywhere. 0 if amax is 0; never below -126. `amax` <= kWeightMax (CHECK).
int global_exponent(float amax);
GlobalScale power_of_two_global(int exponent, GlobalScale::Direction direction);

/// Bits of the largest magnitude among `values` (BF16, F16 or F32, any count), as a float. NaN and
/// infinities come back as they are: the caller compares against kWeightMax with !(x <= max).
float largest_magnitude(const std::byte* values, DType dtype, int64_t count);

/// Rows [begin, begin + rows) of a matrix.
TensorView rows_of(const TensorView& matrix, int64_t begin, int64_t rows);

struct RoundStatistics {
  double weight_squares = 0;      // sum of w^2
  double error_squares = 0;       // sum of (w - rounded)^2
  double amax_error_squares = 0;  // the same, had every block taken the code nearest to amax/6
  int64_t zero_blocks = 0;        // blocks of zeros in the source
  int64_t flushed_blocks = 0;     // blocks with weights, all rounded to zero
  RoundStatistics& operator+=(const RoundStatistics& other);
  /// Multiplies the squares.
  void scale_by(double factor);
};

/// Instruction sets; all give the same bytes.
enum class RoundPath : uint8_t { portable, avx2, avx512 };
std::string_view round_path_name(RoundPath path);
bool round_path_available(RoundPath path);
/// The fastest that this machine has.
RoundPath best_round_path();

struct RoundRequest {
  int exponent = 0;  // of the global scale
  /// One that needs no data (CHECK).
  RoundAlgorithm algorithm = RoundAlgorithm::search;
  RoundPath path = RoundPath::portable;
};

/// Rounds rows [N, K] of BF16, F16 or F32; K is a multiple of 16 (CHECK), magnitudes are at most
/// kWeightMax. codes: [N, K/2], low nibble = even column, zero is always code 0, never -0.
/// scales: [N, K/16] E4M3, 0x01..0x7E.
/// A code is the E2M1 value nearest to w / (block scale * 2^exponent), the quotient rounded once to
/// F32, ties to the even code.
RoundStatistics round_nvfp4_rows(const TensorView& weights, const RoundRequest& request,
                                 std::span<uint8_t> codes, std::span<uint8_t> scales);

}  // namespace nibble
