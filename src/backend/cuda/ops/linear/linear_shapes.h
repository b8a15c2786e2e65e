// Sizes that the kernels of linear() share with the choice among them (linear_select.cc): plain
// numbers, for host and device.
#pragma once

#include <cstdint>

#include "backend/cuda/runtime/with_value.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

inline constexpr int kRowTile = 16;   // rows of W that one mma instruction multiplies
inline constexpr int kTokenTile = 8;  // tokens, likewise
inline constexpr int kWordBytes = 16;
inline constexpr int kTileSumBytes = kRowTile * kTokenTile * 4;  // F32 sums of one tile

/// Calls act.operator()<format, blocks>(): FP8 weights have a factor for each 128 x 128 or not.
template <typename Act>
decltype(auto) with_codes(Format format, FactorLayout layout, const Act& act) {
  if (format == Format::nvfp4) return act.template operator()<Format::nvfp4, false>();
  CHECK(format == Format::fp8, "a kernel of codes for format ", static_cast<int>(format));
  return layout == FactorLayout::block128 ? act.template operator()<Format::fp8, true>()
                                          : act.template operator()<Format::fp8, false>();
}
template <typename Act>
decltype(auto) with_layout(Format format, FactorLayout layout, const Act& act) {
  if (format == Format::bf16) return act.template operator()<Format::bf16, false>();
  return with_codes(format, layout, act);
}

/// Returns the columns of a slice, which one warp has in registers at a time.
constexpr int slice_columns(Format format) { return format == Format::bf16 ? 128 : 256; }
/// 8-column units of a slice that one lane reads.
constexpr int unit_count(Format format) { return slice_columns(format) / 32; }
constexpr int slice_count(const DeviceLinear& w) { return w.cols / slice_columns(w.format); }
/// Returns the number of parts in which the columns of a matrix are added up, at most `limit`:
/// slice s belongs to part s % parts.
constexpr int parts_of(Format format, int cols, int limit) {
  const int slices = cols / slice_columns(format);
  return slices < limit ? slices : limit;
}

// ---- inputs on chip (linear_resident.cu, linear_row.cu, linear_tiles.cu, linear_norm.cu) ----

inline constexpr int kResidentWarps = 8;  // warps of a block; 16 where a matrix has more slices
inline constexpr int kResidentSlicesMax = 16;
inline constexpr int kResidentColumnsMax = 4096;  // the longest row that a product norms itself
/// Returns the words of shared memory for the inputs of 8 `tiles` tokens:
/// [slice][unit][tile][lane].
constexpr int resident_words(Format format, int slices, int tiles) {
  return slices * unit_count(format) * tiles * 32;
}

/// A thread block of linear_resident.cu has 8 `tiles` tokens; each of its warps has `parts` slices.
struct ResidentShape {
  Format format = Format::bf16;
  int tiles = 1;
  int warps = 8;
  int parts = 1;
  /// Returns the slices of weights that a warp has in registers.
  constexpr int slices_ahead() const {
    return parts == 1 && warps == 8 && format == Format::nvfp4 && tiles == 2 ? 2 : 1;
  }
  constexpr int sum_bytes() const {
    return 2 * slices_ahead() * warps * parts * tiles * kTileSumBytes;
  }
};
/// The second matrices of a mixed launch, in BF16, of a block of `tiles` and `warps`.
constexpr ResidentShape second_of(const ResidentShape& first) {
  return {.format = Format::bf16,
          .tiles = first.tiles < 2 ? first.tiles : 2,
          .warps = first.warps,
          .parts = first.warps == 8 ? 2 : 1};
}
/// Formats of a launch: `mixed` has matrices in BF16 beside those of the first format.
enum class Mix : uint8_t { one_format, mixed };
/// Shared memory of a thread block with room for the most slices, so that a kernel is prepared
/// once.
constexpr int resident_bytes(const ResidentShape& first, Mix mix) {
  const ResidentShape second = second_of(first);
  const int own =
      first.sum_bytes() +
      resident_words(first.format, first.tiles == 4 ? 8 : first.warps, first.tiles) * kWordBytes;
  const int other =
      mix == Mix::mixed
          ? second.sum_bytes() +
                resident_words(Format::bf16, kResidentSlicesMax, second.tiles) * kWordBytes
          : 0;
  return own > other ? own : other;
}

// ---- a warp a tile (linear_tiles.cu) ----

inline constexpr int kTilesWarps = 12;
inline constexpr int kTilesTokens = 32;
/// Warps that make different tiles, if `split` warps share one.
constexpr int tiles_teams(int split) { return kTilesWarps / split; }

// ---- several rows with their norm (linear_norm.cu) ----

inline constexpr int kNormWarps = kResidentSlicesMax;
constexpr int norm_bytes(int tiles) {
  return kNormWarps * (unit_count(Format::bf16) * tiles * 32 * kWordBytes + tiles * kTileSumBytes +
                       tiles * kTokenTile * 4);
}

// ---- long rows with mma (linear.cu) ----

inline constexpr int kChainWarps = 8;
inline constexpr int kSplitWarpsMax = 16;

// ---- weights streamed into wgmma (linear_stream.cu) ----

/// The products of one launch: the head; matrices of rows too long for shared memory; or SwiGLU of
/// two matrices, of which a tile has 32 rows each, in alternating groups of eight.
enum class StreamKind : uint8_t { head, longs, gate_up };

inline constexpr int kStreamRowTile = 64;    // rows of W that one wgmma multiplies
inline constexpr int kStageColumns = 256;    // columns of a pipeline stage, which a cluster shares
inline constexpr int kStreamGroups = 2;      // warpgroups that multiply; each half of a stage
inline constexpr int kStreamStagesMax = 12;  // stages of the pipeline
inline constexpr int kStreamFinishBits = 2;  // log2 of the blocks of a cluster that finish rows
inline constexpr int kStreamAlignment = 1024;                 // alignment of shared memory
inline constexpr int kStreamScaleBytes = kStageColumns / 16;  // of a row in one stage (nvfp4)
inline constexpr int kStreamBarrierBytes = (2 * kStreamStagesMax + 2) * 8;

constexpr int stream_ranks_max(StreamKind kind) { return kind == StreamKind::head ? 4 : 8; }
/// Returns the bytes of a row of W in one stage.
constexpr int stream_row_bytes(Format format) {
  return static_cast<int>(value_bytes(format, kStageColumns));
}
/// Rows four apart, which a warp reads together (stream_row), lie in different banks.
constexpr int stream_pitch(Format format) { return stream_row_bytes(format) + 16; }
constexpr int stage_bytes(Format format) {
  return kStreamRowTile *
         (stream_pitch(format) + (format == Format::nvfp4 ? kStreamScaleBytes : 0));
}
/// Returns the bytes of the sums of the rows that a block finishes, of each warpgroup of the
/// cluster.
constexpr int stream_sum_bytes(int n8, int rank_bits) {
  return n8 * (rank_bits > kStreamFinishBits ? 8192 : 4096);
}
/// Returns the bytes of the inputs of 8 n8 tokens in one block of a cluster that shares `stages`
/// stages of columns.
constexpr int stream_input_bytes(int stages, int rank_bits, int n8) {
  return ceil_div(stages, 1 << rank_bits) * kStageColumns * 2 * 8 * n8;
}

}  // namespace nibble::cuda
