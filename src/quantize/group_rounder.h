// Rounds the linears of one fused group and appends what they become to the output. Reads the group
// in row blocks: once if it may stay in memory, else once for its largest magnitude and once to
// round.
#pragma once

#include <functional>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_writer.h"
#include "quantize/block_bytes.h"
#include "quantize/recipe/quant_plan.h"
#include "quantize/rounding/rounding.h"

namespace nibble {

struct GroupRounderOptions {
  RoundAlgorithm algorithm = RoundAlgorithm::search;
  Dialect dialect = Dialect::compressed_tensors;
  int64_t held_bytes_max = 0;
  /// Source bytes of a row block, rounded down to whole rows, and for FP8 blocks to whole bands of
  /// 128 rows; at least one row or band.
  int64_t block_bytes = kBlockBytes;
  /// Statistics of a linear's input from calibration; empty: there are none.
  std::function<const InputStatistics*(const LinearSource&)> statistics = {};
  /// FP32 scale of the inputs, multiply direction; empty: what the recipe says.
  std::function<float(const PlannedLinear&)> input_scale = {};
  /// Does GPTQ; nullptr: the CPU does.
  GptqDevice* device = nullptr;
  /// Asked before each block; an error stops the work.
  std::function<Result<void>()> check = {};
};

/// The outcome for one linear.
struct LinearOutcome {
  RoundStatistics statistics;
  std::string fallback;  // why it was rounded without data, or empty

  Json json() const;
  /// Reads what json() wrote, in this run or an earlier one. Errors: corrupt.
  static Result<LinearOutcome> parse(const Json& json);
};

struct RoundedGroup {
  std::vector<LinearOutcome> outcomes;  // one per linear
  std::string source_hash;              // as GroupRounder::source_hash() gives it
};

class GroupRounder {
 public:
  GroupRounder(const Checkpoint& checkpoint, CheckpointWriter& writer, GroupRounderOptions options)
      : checkpoint_(checkpoint), writer_(writer), options_(std::move(options)) {}

  /// Errors: corrupt names a tensor, row and column that is no weight; io.
  Result<RoundedGroup> round(const FusedGroup& group, ThreadPool& threads) const;

  /// SHA-256 of the group's weights in the source, linear after linear. Errors: io.
  Result<std::string> source_hash(const FusedGroup& group) const;

  /// Rows [begin, begin + rows) of a linear, as they are in the file.
  Result<Tensor> read_rows(const LinearSource& source, int64_t begin, int64_t rows) const;

 private:
  struct RowBlock {
    size_t linear = 0;
    int64_t begin = 0;
    int64_t rows = 0;
    Tensor values = {};
  };
  /// The scales that the linears of a group have in common.
  struct GroupScale {
    int exponent = 0;  // NVFP4
    float fp8 = 1.0F;  // FP8 per tensor
  };
  struct FirstPass {
    float amax = 0;
    std::string source_hash;
  };
  /// One of the two, as the group's format is; for all linears of the group with this input.
  struct Prepared {
    const InputStatistics* statistics = nullptr;
    Rounding four_bit;
    Fp8Rounding fp8;
  };
  struct Fp8Band {
    std::span<uint8_t> codes;
    std::span<float> scales;
  };
  std::vector<RowBlock> cut(const FusedGroup& group) const;
  Result<FirstPass> first_pass(const FusedGroup& group, std::vector<RowBlock>& blocks) const;
  Error bad_weight(const PlannedLinear& linear, const RowBlock& block) const;
  void prepare(const PlannedLinear& linear, Prepared& prepared) const;
  Result<RoundStatistics> write_nvfp4(const PlannedLinear& linear, const RowBlock& block,
                                      const GroupScale& scale, const RowRounder& rounder,
                                      ThreadPool& threads) const;
  Result<RoundStatistics> write_fp8(const PlannedLinear& linear, const RowBlock& block,
                                    const GroupScale& scale, const Fp8Rounding& rounding,
                                    ThreadPool& threads) const;
  static RoundStatistics round_fp8(const TensorView& weights, float tensor_scale,
                                   WeightFormat format, const Fp8Band& out);
  Result<void> write_scales(const PlannedLinear& linear, const GroupScale& scale) const;

  const Checkpoint& checkpoint_;
  CheckpointWriter& writer_;
  GroupRounderOptions options_;
};

}  // namespace nibble
