// A Batch as kernels see it: device pointers and counts.
#pragma once

#include <compare>
#include <cstdint>

namespace nibble::cuda {

/// The extent of a launch: rows of sequences, those of one sequence adjacent and in order. In plain
/// decode each sequence has one row; drafted rows make it several.
struct Extent {
  int32_t rows = 0;
  int32_t sequences = 0;
  bool replays = false;  // sequences may replay saved inputs, or save those of their rows
  bool single_rows() const { return rows == sequences; }
  auto operator<=>(const Extent&) const = default;
};

/// A BatchView is a Batch on the device. Generated rows come first; a row of no sequence is
/// padding.
struct BatchView {
  int32_t rows = 0;
  int32_t sequences = 0;
  const int32_t* tokens = nullptr;     // [rows]; -1 - p: row p of `media` in place of a token's
  const int32_t* positions = nullptr;  // [3][positions_stride]
  int32_t positions_stride = 0;
  const int32_t* kv_index = nullptr;       // [rows], index of the row in its sequence; -1: padding
  const int32_t* page_begin = nullptr;     // [rows], into pages
  const int32_t* snapshot_slot = nullptr;  // [rows], -1: none
  const int32_t* row_begin = nullptr;      // [sequences]
  const int32_t* row_count = nullptr;      // [sequences], 0: padding
  const int32_t* state_in = nullptr;       // [sequences]
  const int32_t* state_out = nullptr;      // [sequences]
  const int32_t* replay = nullptr;         // [sequences], saved inputs applied before the first row
  const int32_t* drafted = nullptr;        // [sequences], 1: StateWrite::replayed, else 0
  const int32_t* pages = nullptr;
  const int32_t* logit_rows = nullptr;

  bool replays = false;  // as Extent; else `replay` and `drafted` are all zeros
  // With a layer that drafts: the sequence of each row, -1 for padding, and the rotary positions of
  // the rows' entries, those of the tokens before [3][positions_stride].
  const int32_t* sequence_of = nullptr;
  const int32_t* entry_positions = nullptr;
  const float* media = nullptr;  // F32 [media rows][hidden]

  Extent extent() const { return {.rows = rows, .sequences = sequences, .replays = replays}; }
};

/// These count the integers of a batch for each row and each sequence, without page tables.
inline constexpr int64_t kBatchRowInts = 8;
inline constexpr int64_t kBatchEntryInts = 4;  // of each row, with a layer that drafts
inline constexpr int64_t kBatchSequenceInts = 6;

}  // namespace nibble::cuda
