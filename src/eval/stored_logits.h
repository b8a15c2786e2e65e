// StoredLogits: raw logits that LogitsFile has written, read back row after row as the reference of
// a comparison.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace nibble {

class StoredLogits {
 public:
  /// Errors: not_found, io, corrupt; invalid_argument when the file has no logits, or not `rows`
  /// rows of `vocab_rows` for each sequence.
  static Result<StoredLogits> open(const std::filesystem::path& path, std::span<const int64_t> rows,
                                   int64_t vocab_rows);

  /// The next rows [count, vocab_rows], in order over all sequences, valid until the next call.
  /// Errors: io, corrupt; not finite ones too.
  Result<std::span<const float>> next(int64_t count);

 private:
  StoredLogits(File file, std::vector<uint64_t> offsets, std::vector<int64_t> rows,
               int64_t vocab_rows)
      : file_(std::move(file)),
        offsets_(std::move(offsets)),
        rows_(std::move(rows)),
        vocab_rows_(vocab_rows) {}

  File file_;
  std::vector<uint64_t> offsets_;  // of each sequence
  std::vector<int64_t> rows_;
  int64_t vocab_rows_;
  size_t sequence_ = 0;
  int64_t row_ = 0;  // of the sequence
  std::vector<float> values_;
};

}  // namespace nibble
