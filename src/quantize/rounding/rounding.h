// Rounding of one linear, by any algorithm, with or without what calibration saw of its input: a
// pure function (weight, statistics, global scale, algorithm) -> packed, cut in two so that rows
// may come in pieces and on any thread. Knows no files and no names. Calibration: calibration.h.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/devices/gptq_device.h"
#include "model/taps.h"
#include "quantize/rounding/fp8_gptq.h"
#include "quantize/rounding/nvfp4_round.h"
#include "tensor/tensor.h"

namespace nibble {

/// The sums over a linear's input that an algorithm needs; none: it works without data.
SecondMoment moment_needed(RoundAlgorithm algorithm);
inline bool is_data_free(RoundAlgorithm algorithm) {
  return moment_needed(algorithm) == SecondMoment::none;
}
/// The same for one linear of a run: an algorithm may leave a format to rounding without data.
SecondMoment moment_needed(RoundAlgorithm algorithm, WeightFormat format);

/// The places of rounded rows [N, K]: codes [N, K/2], scales [N, K/16].
struct RoundedBytes {
  std::span<uint8_t> codes;
  std::span<uint8_t> scales;
};

/// Rounds rows of one linear, in any order, from any thread. The bytes of a row depend on that row,
/// the exponent and the statistics alone.
class RowRounder {
 public:
  virtual ~RowRounder() = default;
  /// As round_nvfp4_rows: weights [N, K] of BF16, F16 or F32, magnitudes at most kWeightMax;
  /// `exponent` of the fused group's global scale; codes [N, K/2], scales [N, K/16].
  virtual RoundStatistics round(const TensorView& weights, int exponent, std::span<uint8_t> codes,
                                std::span<uint8_t> scales) const = 0;
  /// The same of many rows, with the help of threads, on which no sum depends.
  virtual RoundStatistics round_block(const TensorView& weights, int exponent,
                                      const RoundedBytes& out, ThreadPool& threads) const;
};

/// Sums statistics_of(rows, their bytes) over tiles of 8 rows of `weights` [N, K], in order.
RoundStatistics sum_by_tiles(
    const TensorView& weights, const RoundedBytes& out, ThreadPool& threads,
    const std::function<RoundStatistics(const TensorView&, const RoundedBytes&)>& statistics_of);

struct RoundingRequest {
  RoundAlgorithm algorithm = RoundAlgorithm::search;
  int64_t cols = 0;                             // K, a multiple of 16 (CHECK)
  const InputStatistics* statistics = nullptr;  // read while preparing only
  /// With fewer tokens than this the data-free search is used. Of an expert: tokens routed to it.
  int64_t tokens_min = 256;
  RoundPath path = RoundPath::portable;
  /// Does GPTQ of the inputs that it takes, to the same bytes; nullptr: none.
  GptqDevice* device = nullptr;
};

struct Rounding {
  RoundAlgorithm algorithm = RoundAlgorithm::search;  // what will in fact be done
  std::string fallback;  // why it is not what was asked for: "12 tokens of 256", or empty
  std::unique_ptr<RowRounder> rows;
};

/// The slow part, once per linear (GPTQ factorises a [K, K] matrix here). Never fails: without
/// usable statistics it falls back to the data-free search and says so.
Rounding prepare_rounding(const RoundingRequest& request);

/// FP8 codes: with error feedback if the algorithm is gptq, else as fp8_round.h gives them.
struct Fp8Rounding {
  std::string fallback;                   // the reason why gptq is not done, or empty
  std::unique_ptr<Fp8Rounder> gptq = {};  // nullptr: codes are rounded one by one
};

/// As prepare_rounding, for a linear that becomes FP8; its columns may be any number.
Fp8Rounding prepare_fp8_rounding(const RoundingRequest& request);

/// A whole matrix at once.
struct RoundedMatrix {
  std::vector<uint8_t> codes, scales;
  RoundStatistics statistics;
};
RoundedMatrix round_matrix(const Rounding& rounding, const TensorView& weights, int exponent);

}  // namespace nibble
