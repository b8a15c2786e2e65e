// LogitsFile: raw logits as a safetensors file, written as a stream. One sequence: tensor `logits`
// [T, V] F32; several: `logits.0`, `logits.1`, ... It appears under its name only when complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace nibble {

class LogitsFile {
 public:
  /// `rows`: T of each sequence. Errors: invalid_argument when `path` exists, no_space, io.
  static Result<LogitsFile> create(const std::filesystem::path& path, std::span<const int64_t> rows,
                                   int64_t vocab_rows);
  LogitsFile(LogitsFile&& other) noexcept = default;
  LogitsFile& operator=(LogitsFile&&) = delete;
  /// Removes what was written unless finish() succeeded.
  ~LogitsFile();

  /// The next rows, in order over all sequences.
  Result<void> append(std::span<const float> logits);
  /// All rows must have been appended (CHECK).
  Result<void> finish();

 private:
  LogitsFile(File file, std::filesystem::path path, uint64_t begin, uint64_t end);

  std::optional<File> file_;  // empty once finished
  std::filesystem::path path_;
  std::filesystem::path partial_;  // empty once finished or moved from
  uint64_t offset_;
  uint64_t end_;
};

}  // namespace nibble
