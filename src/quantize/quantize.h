// quantize: runs a plan: rounds every planned group, copies the rest, writes a complete checkpoint
// or one that the same call continues after a kill, to the same bytes. Memory: the largest group
// and what the threads hold (DESIGN: + 300 MB).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "quantize/block_bytes.h"
#include "quantize/calibrate/calibration.h"
#include "quantize/recipe/quant_plan.h"
#include "quantize/report/allocation.h"
#include "quantize/report/quantize_report.h"
#include "quantize/rounding/nvfp4_round.h"

namespace nibble {

enum class OutputFiles : uint8_t { several, one };

struct QuantizeOptions {
  RoundAlgorithm algorithm = RoundAlgorithm::search;
  int threads = 0;  // 0: one per usable core
  int64_t shard_bytes_max = int64_t{5} << 30;
  /// several: shards, and files of their own for the head and the MTP layer. one:
  /// model.safetensors.
  OutputFiles files = OutputFiles::several;
  /// A fused group with more source bytes is read twice instead of kept in memory; one of more than
  /// an eighth of this is worked on by all threads together instead of by one.
  int64_t held_bytes_max = int64_t{256} << 20;
  /// Read, rounded or copied at once.
  int64_t block_bytes = kBlockBytes;
  /// Output bytes done and in all; one call at a time, from any thread.
  std::function<void(int64_t done, int64_t total)> progress = {};
  /// Asked often; true stops the work with `cancelled`; the same call goes on where it stopped.
  std::function<bool()> cancelled = {};
  /// Begun but not run; nullptr: none. Its parts are run as the work needs them. `data_hash` says
  /// what it is made from: work is continued only if that is the same.
  Calibration* calibration = nullptr;
  std::string data_hash = {};
  /// How tokens counted in the sums, as the option says it; for the command in the report. Empty:
  /// alike.
  std::string second_moments = {};
  /// How the recipe came about, for the report; nullptr: somebody wrote it.
  const Allocation* allocation = nullptr;
  /// A kill costs at most the work of this time.
  double journal_seconds = 2.0;
};

/// The most bytes that a run takes in addition to the program itself. `options.threads` must be set
/// (CHECK). `device`: it holds the sums and factors of the linears that it takes.
int64_t quantize_memory_bytes(const QuantPlan& plan, const QuantizeOptions& options,
                              const GptqDevice* device);
/// Lowers held_bytes_max, then threads, until the run holds at most `limit_bytes`. Errors:
/// no_memory with the least that would do.
Result<void> fit_memory(const QuantPlan& plan, int64_t limit_bytes, const GptqDevice* device,
                        QuantizeOptions& options);

/// Writes `output`: shards, index, config.json with the declaration, hf_quant_config.json for
/// ModelOpt, recipe.yaml, quantize_report.json, quantize_hashes.json and every companion file of
/// the source. Errors: corrupt names a tensor with NaN, infinite or absurd weights, or a source
/// that changed; invalid_argument for an output that is not empty, is the source, or was begun from
/// another source (of which what is finished is read again) or with other settings; no_space; io;
/// cancelled. The last two, a disk that fills up later and another source leave an output to
/// continue; the others leave nothing.
Result<QuantizeReport> quantize(const Checkpoint& checkpoint, const QuantPlan& plan,
                                const Recipe& recipe, const std::filesystem::path& output,
                                const QuantizeOptions& options);

}  // namespace nibble
