// quantize: runs a plan. Data-free: rounds every planned group, copies the rest, writes a complete
// checkpoint or nothing. Memory: the largest group and what the threads hold (DESIGN: + 300 MB).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "quantize/nvfp4_round.h"
#include "quantize/quant_plan.h"
#include "quantize/quantize_report.h"

namespace nibble {

struct QuantizeOptions {
  RoundAlgorithm algorithm = RoundAlgorithm::search;
  int threads = 0;  // 0: one per usable core
  int64_t shard_bytes_max = int64_t{5} << 30;
  /// A fused group with more source bytes is read twice instead of held; one of more than an eighth
  /// of this is worked on by all threads together instead of by one.
  int64_t held_bytes_max = int64_t{256} << 20;
  /// Output bytes done and in all; one call at a time, from any thread.
  std::function<void(int64_t done, int64_t total)> progress = {};
  /// Asked often; true stops the work with `cancelled`, leaving nothing behind.
  std::function<bool()> cancelled = {};
};

/// Bytes the run holds at most beside the program itself. `options.threads` must be set (CHECK).
int64_t quantize_memory_bytes(const QuantPlan& plan, const QuantizeOptions& options);

/// Writes `output`: shards, index, config.json with the declaration, hf_quant_config.json for
/// ModelOpt, recipe.yaml, quantize_report.json and every companion file of the source.
/// Errors: corrupt names a tensor with NaN, infinite or absurd weights; invalid_argument for an
/// output that is not empty or is the source; no_space; io; cancelled.
Result<QuantizeReport> quantize(const Checkpoint& checkpoint, const QuantPlan& plan,
                                const Recipe& recipe, const std::filesystem::path& output,
                                const QuantizeOptions& options);

}  // namespace nibble
