// convert: the same weights in the other NVFP4 dialect. Codes and block scales are copied, FP32
// scales become their reciprocals, names and config change. Refuses by name what the other dialect
// cannot say.
#pragma once

#include <filesystem>
#include <functional>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "quantize/block_bytes.h"
#include "quantize/recipe/dialect.h"

namespace nibble {

struct ConvertOptions {
  int64_t shard_bytes_max = int64_t{5} << 30;
  int64_t block_bytes = kBlockBytes;  // copied at once
  std::function<void(int64_t done, int64_t total)> progress = {};
  std::function<bool()> cancelled = {};
};

struct ConvertReport {
  int64_t linears = 0;  // quantized ones
  /// FP32 scales x with 1/(1/x) != x in F32. Zero for files of this program, whose scales are
  /// powers of two. Weights under such a scale differ by one rounding, 6e-8 of themselves.
  int64_t inexact_scales = 0;
  /// Input scales of weight-only linears, which compressed-tensors has no place for: left out.
  int64_t unread_scales = 0;
  int64_t bytes = 0;  // of tensors
};

/// Errors: unsupported (not quantized, already in that dialect, FP8 in blocks, quantized tensors
/// outside of the text model, a declared KV-cache format); otherwise as quantize().
Result<ConvertReport> convert(const Checkpoint& checkpoint, Dialect target,
                              const std::filesystem::path& output, const ConvertOptions& options);

}  // namespace nibble
