// Rows as files store them to the panels of 16 interleaved rows that kernels read (kernels.h).
// Every format is the same move of 32-bit words; only NVFP4 scales are moved as bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nibble::cpu {

/// One panel's worth of rows: row i begins at first + i * bytes.
struct StoredRows {
  const std::byte* first = nullptr;
  int64_t bytes = 0;  // of one row
  int count = 0;      // 1..16; lanes of missing rows become zero
};

/// out [ceil(bytes / 4)][16] words; the last word of a row is filled up with zeros.
void interleave_words(const StoredRows& rows, std::byte* out);
/// out [bytes][16] bytes.
void interleave_bytes(const StoredRows& rows, std::byte* out);

}  // namespace nibble::cpu
