// verify: is a checkpoint sound? Everything that can be known without running the model: names,
// shapes and types against the config, every value finite, scales that may be what they are, fused
// groups that share them, a declaration that agrees with the tensors, the files that go with them,
// and nothing changed since the hashes beside them were written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

enum class Severity : uint8_t {
  error,    // the checkpoint will not load everywhere, or not compute what it should
  warning,  // it works, but somebody should know
};

struct Finding {
  Severity severity = Severity::error;
  std::string subject;  // tensor, module or file
  std::string text;     // one line
};

/// all: reads every byte. headers: names, types, shapes, config; for a look before a download ends.
enum class VerifyDepth : uint8_t { all, headers };

struct VerifyOptions {
  VerifyDepth depth = VerifyDepth::all;
  /// Bytes of tensors read so far and in all.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

struct VerifyReport {
  std::vector<Finding> findings;
  int64_t tensors = 0;
  int64_t bytes = 0;  // of tensors
  int64_t quantized_modules = 0;
  /// none: the folder has no report of this program. not_kept: it has one that names no hashes, as
  /// older versions write it. compared: every tensor and file was held against its hash.
  enum class Hashed : uint8_t { none, not_kept, compared } hashed = Hashed::none;
  int64_t count(Severity severity) const;
  bool sound() const { return count(Severity::error) == 0; }
};

/// A broken checkpoint is a report, not an Error. Errors: not_found or invalid_argument when there
/// is no folder to look at, io when a disk fails.
Result<VerifyReport> verify_checkpoint(const std::filesystem::path& folder,
                                       const VerifyOptions& options = {});

}  // namespace nibble
