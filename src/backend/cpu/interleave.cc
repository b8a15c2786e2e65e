// Transposes tile by tile (transpose.h); what is no whole tile is copied to one that is filled up
// with zeros.
#include "backend/cpu/interleave.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/transpose.h"

namespace nibble::cpu {
namespace {

static_assert(kTransposedRows == kPanelRows);
constexpr int kTileBytes = 16;  // of a row, in transpose_bytes

/// `columns` bytes from `begin` on of all rows, in a tile of 16 rows of kBytes filled up with
/// zeros.
template <int kBytes>
struct PaddedTile {
  std::byte bytes[kPanelRows * kBytes] = {};
  PaddedTile(const StoredRows& rows, int64_t begin) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kBytes, rows.bytes - begin));
    for (int row = 0; row < rows.count; ++row)
      std::memcpy(bytes + row * kBytes, rows.first + row * rows.bytes + begin, count);
  }
};

}  // namespace

void interleave_words(const StoredRows& rows, std::byte* out) {
  constexpr int kWide = kLineBytes;
  int64_t begin = 0;
  for (; rows.count == kPanelRows && begin + kWide <= rows.bytes; begin += kWide)
    transpose_words(rows.first + begin, rows.bytes, out + begin * kPanelRows);
  for (; begin < rows.bytes; begin += kWide) {
    const PaddedTile<kWide> tile(rows, begin);
    std::byte transposed[kPanelRows * kWide];
    transpose_words(tile.bytes, kWide, transposed);
    const int64_t words = std::min<int64_t>(kWide / 4, (rows.bytes - begin + 3) / 4);
    std::memcpy(out + begin * kPanelRows, transposed, static_cast<size_t>(words * kPanelRows * 4));
  }
}

void interleave_bytes(const StoredRows& rows, std::byte* out) {
  int64_t begin = 0;
  for (; rows.count == kPanelRows && begin + kTileBytes <= rows.bytes; begin += kTileBytes)
    transpose_bytes(rows.first + begin, rows.bytes, out + begin * kPanelRows);
  for (; begin < rows.bytes; begin += kTileBytes) {
    const PaddedTile<kTileBytes> tile(rows, begin);
    std::byte transposed[kPanelRows * kTileBytes];
    transpose_bytes(tile.bytes, kTileBytes, transposed);
    const int64_t columns = std::min<int64_t>(kTileBytes, rows.bytes - begin);
    std::memcpy(out + begin * kPanelRows, transposed, static_cast<size_t>(columns * kPanelRows));
  }
}

}  // namespace nibble::cpu
